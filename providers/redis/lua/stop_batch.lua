-- Refuse new runs of a batch, or accept them again.
--
-- KEYS home
-- ARGV batch:text reason:text
-- USES intact
--
-- reason: why they are refused; "" to accept them.
-- Returns 1, or 0 if there is no such batch.
local key = batch_key(home, batch)
if redis.call("EXISTS", key) == 0 then return 0 end
intact_batch(home, batch)
if reason == "" then redis.call("HDEL", key, "stopped") else redis.call("HSET", key, "stopped", reason) end
return 1
