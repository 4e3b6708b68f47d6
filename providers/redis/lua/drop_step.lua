-- A step that was begun raised: it is not in doubt, and it is not recorded.
--
-- KEYS task
-- ARGV token
--
-- Returns 1, or 0 where the claim is lost.
if redis.call("HGET", task, "token") ~= token then return 0 end
redis.call("HINCRBY", task, "begun", -1)
return 1
