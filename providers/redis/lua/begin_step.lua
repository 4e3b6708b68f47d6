-- Note that a step is about to be done, so that a crash in it is counted as in doubt.
--
-- KEYS task
-- ARGV token
--
-- Returns 1, or 0 where the claim is lost (the step's own record will be refused).
if redis.call("HGET", task, "token") ~= token then return 0 end
redis.call("HINCRBY", task, "begun", 1)
return 1
