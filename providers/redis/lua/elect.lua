-- Lead, if nobody does or if the leader that was seen to be gone still stands there; or go on leading.
--
-- KEYS leader
-- ARGV me:text gone:text ttl_ms:int
--
-- Returns 1 if I lead now, else 0.
local who = redis.call("GET", leader)
if who and who ~= me and who ~= gone then return 0 end
redis.call("SET", leader, me, "PX", ttl_ms)
return 1
