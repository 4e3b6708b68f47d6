-- Note which steps are being done, so that a crash in them is counted as in doubt.
--
-- KEYS task
-- ARGV token begun
--
-- begun: all of them, as entries of the account; "" for none.
-- Returns 1, or 0 where the claim is lost (the step's own record will be refused).
if redis.call("HGET", task, "token") ~= token then return 0 end
redis.call("HSET", task, "begun", begun)
return 1
