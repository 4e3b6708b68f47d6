-- Keep only the newest checkpoints of a branch. Its outputs, and branches that left it, need none of them.
--
-- KEYS checkpoints lineage
-- ARGV keep:int
--
-- Returns how many went.
local excess = redis.call("ZCARD", checkpoints) - tonumber(keep)
redis.call("HLEN", lineage)
if excess <= 0 then return 0 end
local oldest = redis.call("ZRANGE", checkpoints, 0, excess - 1)
redis.call("ZREMRANGEBYRANK", checkpoints, 0, excess - 1)
for _, old in ipairs(oldest) do redis.call("HDEL", lineage, old) end
return excess
