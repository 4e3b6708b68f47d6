-- Drop the data of a bundle that turned out to be damaged: the next submission of its crew stores it again.
--
-- KEYS bundle
-- ARGV digest:text
--
-- digest: the sha1 of the damaged data. Returns 1 if that was there.
local data = redis.call("HGET", bundle, "data")
if not data or redis.sha1hex(data) ~= digest then return 0 end
redis.call("HDEL", bundle, "data")
return 1
