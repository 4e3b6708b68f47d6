-- A heartbeat: renew a worker's lease, which is one entry, scored with the time at which it lapses.
--
-- KEYS workers worker claims
-- ARGV id:text lease_ms:int about:text
-- USES now
--
-- about: JSON of what it says of itself when it registers, or "". Returns {1 if the lease still stood, how often its
-- claims were taken from outside, the server's time, claims as a flat list of reference, "token|process|deadline",
-- how many heartbeats its record has counted: fewer than the worker was told before mean that the store lost writes}.
local at = now()
local stood = redis.call("ZSCORE", workers, id)
local known = redis.call("HLEN", worker) > 0
local held, recheck = redis.call("HGETALL", claims), redis.call("HGET", worker, "recheck") or "0"
needs("HINCRBY")
if about ~= "" then
  needs("ZADD")
  redis.call("HSET", worker, "about", about)
elseif not stood or not known then
  return {0, "0", at, {}, 0}
end
redis.call("ZADD", workers, at + lease_ms, id)
return {(stood and known) and 1 or 0, recheck, at, held, redis.call("HINCRBY", worker, "beats", 1)}
