-- Record the result of an author's own step, so that it is never done again.
--
-- KEYS run task journal
-- ARGV token:text step:text value:text paid:text begun:text reserved:text reached:int
--
-- As record_step, of which this is what most steps need, by the fewest commands: no tokens, no event, nothing replayed
-- before it; and nothing is written that is so already. paid: "1" if it counts.
-- Returns 1; or 0 if it is refused, of which nothing is said: record_step says it.
local call = redis.call
local t = call("HMGET", task, "token", "reached", "begun", "reserved", "crashes", "handed")
if t[1] ~= token or call("HLEN", run) == 0 then return 0 end
local before = tonumber(t[2] or 0)
if before == 0 or t[6] then needs_all() else needs("HINCRBY", "HSET") end
if call("HSETNX", journal, step, value) == 1 then
  if paid == "1" then call("HINCRBY", run, "paid", 1) end
  if before == 0 and call("HLEN", journal) == 1 then
    -- Begun after the run was over, the journal would outlive it. Of one that had a record before, the run's end saw to it.
    local ttl = call("PTTL", run)
    if ttl > 0 then call("PEXPIRE", journal, ttl) end
  end
end
local known = t[3] == begun and t[4] == reserved
if tonumber(reached) <= before then
  if not known then call("HSET", task, "begun", begun, "reserved", reserved) end
elseif known and t[5] == "0" and not t[6] then
  call("HSET", task, "reached", reached)
else
  call("HSET", task, "begun", begun, "reserved", reserved, "crashes", 0, "reached", reached)
  if t[6] then call("HDEL", task, "handed") end
end
return 1
