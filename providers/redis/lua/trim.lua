-- Remove the runs whose keys have expired from the indexes.
--
-- KEYS runs expiring
-- ARGV limit:int
-- USES now
--
-- Returns how many.
local gone = redis.call("ZRANGEBYSCORE", expiring, "-inf", now(), "LIMIT", 0, limit)
for _, id in ipairs(gone) do
  redis.call("ZREM", runs, id)
  redis.call("ZREM", expiring, id)
end
return #gone
