-- Note which steps are being done, so that a crash in them is counted as in doubt.
--
-- KEYS run task
-- ARGV name:text key:text token:int begun:text new:text
-- USES account
--
-- begun: all of them, as entries of the account; new: those of them that are done whatever this answers. Both "" for none.
-- Where the claim is lost, the earlier ones were counted as in doubt when it was taken back; the new ones are counted here.
-- Returns 1, or 0 where the claim is lost (the step's own record will be refused).
if redis.call("HGET", task, "token") ~= token then
  needs_all()
  local lost = new ~= "" and entries(new, "new")
  redis.call("HLEN", ledger_key(run))
  if lost and redis.call("HLEN", run) > 0 then doubt(run, name, key, token, lost) end
  return 0
end
redis.call("HSET", task, "begun", begun, "reserved", "")
return 1
