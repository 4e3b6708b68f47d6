-- Rate limit: take a turn to call a model, if one is free: only so many calls may be sent in a minute, by all workers together.
--
-- KEYS run
-- ARGV limits:limits minute:int nonce:text
-- USES now
--
-- limits: JSON list of {whose calls, how many in a minute}; all of them have to permit it. minute: in ms.
-- nonce: one per turn, so that one whose answer was lost is not taken twice.
-- Returns 0, or, where there is no turn, in how many ms to ask again.
local at, wait, room = now(), 0, {}
for _, limit in ipairs(limits) do
  local taken, most = pace_key(run, limit[1]), limit[2]
  if redis.call("ZSCORE", taken, nonce) then return 0 end
  redis.call("ZREMRANGEBYSCORE", taken, "-inf", at - minute)
  local many = redis.call("ZCARD", taken)
  if many >= most then
    local first = redis.call("ZRANGE", taken, many - most, many - most, "WITHSCORES")[2]
    wait = math.max(wait, first + minute - at)
  end
  room[#room + 1] = taken
end
if wait > 0 then return math.ceil(wait) end
for _, taken in ipairs(room) do
  redis.call("ZADD", taken, at, nonce)
  redis.call("PEXPIRE", taken, minute)
end
return 0
