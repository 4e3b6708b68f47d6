-- Store a bundle, or learn that it is stored. With empty data, it only asks.
-- It expires after an hour unless a run uses it.
--
-- KEYS bundle
-- ARGV data:text grace_ms:int
--
-- Returns 1 if the bundle is stored now, 0 if the data must be sent.
if redis.call("HEXISTS", bundle, "data") == 1 then
  local left = redis.call("PTTL", bundle)
  if left >= 0 and left < tonumber(grace_ms) then redis.call("PEXPIRE", bundle, grace_ms) end
  return 1
end
if data == "" then return 0 end
redis.call("HSET", bundle, "data", data)
redis.call("HSETNX", bundle, "active", 0)
-- Of one that was damaged, runs may be at work.
if tonumber(redis.call("HGET", bundle, "active")) == 0 then redis.call("PEXPIRE", bundle, grace_ms) end
return 1
