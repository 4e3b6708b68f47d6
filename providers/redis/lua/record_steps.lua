-- Record steps that were done side by side, so that none is done again, and note which are being done from here on.
--
-- KEYS run task journal
-- ARGV name:text key:text token:int steps:steps_done begun:text replayed:entries? reached:int
-- USES emit refuse account
--
-- steps: of each its name, its result, and "1" if it counts as paid; "" where others stand for it. begun: the steps that
-- are being done, or begin with this. reached: how many records its attempt has replayed and made so far, with these.
-- Returns {"recorded"} or {"refused"}.
local t = redis.call("HMGET", task, "token", "reached")
if t[1] ~= token then return refuse(run, name, key, token, "step") end
if replayed then redis.call("HLEN", ledger_key(run)) end
if redis.call("HLEN", run) == 0 then return refuse(run, name, key, token, "step") end
local had, names, first, paid = redis.call("HLEN", journal), {}, false, 0
redis.call("HSET", task, "begun", begun, "reserved", "")
if tonumber(reached) > tonumber(t[2] or 0) then
  redis.call("HSET", task, "crashes", 0, "reached", reached)
  redis.call("HDEL", task, "handed")
end
for i = 1, #steps, 3 do names[#names + 1] = steps[i] end
for from = 1, #names, 1000 do  -- `unpack` has no room for many more
  local there, new, values = redis.call("HMGET", journal, unpack(names, from, math.min(from + 999, #names))), {}, {}
  for i, value in ipairs(there) do
    local at = 3 * (from + i) - 5
    if not value and not new[steps[at]] then
      new[steps[at]] = true
      values[#values + 1] = steps[at]
      values[#values + 1] = steps[at + 1]
      first = first or at == 1
      if steps[at + 2] == "1" then paid = paid + 1 end
    end
  end
  if #values > 0 then redis.call("HSET", journal, unpack(values)) end
end
if paid > 0 then redis.call("HINCRBY", run, "paid", paid) end
if first then account(run, name, key, "replayed", replayed) end
if had == 0 then
  -- Begun after the run was over, the journal would outlive it.
  local ttl = redis.call("PTTL", run)
  if ttl > 0 then redis.call("PEXPIRE", journal, ttl) end
end
return {"recorded"}
