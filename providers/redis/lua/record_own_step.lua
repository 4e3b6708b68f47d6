-- Record the result of an author's own step, so that it is never done again.
--
-- KEYS run task journal
-- ARGV token:int step:text value:text begun:text reserved:text paid:text reached:int
--
-- As record_step, of which this is what most steps need, by the fewest commands: no tokens, no event, nothing replayed
-- before it. paid: "1" if it counts.
-- Returns {"recorded"}; or {"refused"}, of which nothing is said: record_step says it.
local t = redis.call("HMGET", task, "token", "reached", "handed")
if t[1] ~= token or redis.call("HLEN", run) == 0 then return {"refused"} end
if redis.call("HSETNX", journal, step, value) == 1 then
  if paid == "1" then redis.call("HINCRBY", run, "paid", 1) end
  if redis.call("HLEN", journal) == 1 then
    -- Begun after the run was over, the journal would outlive it.
    local ttl = redis.call("PTTL", run)
    if ttl > 0 then redis.call("PEXPIRE", journal, ttl) end
  end
end
if tonumber(reached) > tonumber(t[2] or 0) then
  redis.call("HSET", task, "begun", begun, "reserved", reserved, "crashes", 0, "reached", reached)
  if t[3] then redis.call("HDEL", task, "handed") end
else
  redis.call("HSET", task, "begun", begun, "reserved", reserved)
end
return {"recorded"}
