-- Keep only the newest checkpoints of a branch. Its outputs, and branches that left it, need none of them.
--
-- KEYS branch
-- ARGV keep:int
-- USES journals
--
-- Returns how many went.
local excess = redis.call("ZCARD", checkpoints_key(branch)) - tonumber(keep)
redis.call("HLEN", lineage_key(branch))
if excess <= 0 then return 0 end
local oldest = redis.call("ZRANGE", checkpoints_key(branch), 0, excess - 1)
redis.call("ZREMRANGEBYRANK", checkpoints_key(branch), 0, excess - 1)
for _, old in ipairs(oldest) do redis.call("HDEL", lineage_key(branch), old) end
drop_journals(branch)
return excess
