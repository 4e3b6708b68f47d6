-- Become the leader if there is none, or if the one that was seen to be gone is still recorded; or stay the leader.
--
-- KEYS leader
-- ARGV me:text gone:text ttl_ms:int
--
-- Returns 1 if the caller is the leader now, else 0.
local who = redis.call("MGET", leader)[1]  -- nil, too, where the key is of another type
if who and who ~= me and who ~= gone then return 0 end
redis.call("SET", leader, me, "PX", ttl_ms)
return 1
