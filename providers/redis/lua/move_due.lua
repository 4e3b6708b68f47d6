-- Send the tasks whose next attempt has come.
--
-- KEYS home due
-- ARGV limit
-- USES now queued send
--
-- Returns how many.
local at = now()
local refs = redis.call("ZRANGEBYSCORE", due, "-inf", at, "LIMIT", 0, limit)
for _, ref in ipairs(refs) do
  redis.call("ZREM", due, ref)
  local run_id, name, key = string.match(ref, "^([^|]*)|([^|]*)|(.*)$")
  local run = run_key(home, run_id)
  local record = task_key(branch_key(run, name), key)
  if redis.call("HGET", record, "state") == "delayed" then
    redis.call("HSET", record, "state", "queued")
    send(home, run, name, key, redis.call("HGET", record, "attempt"), at)
  end
end
return #refs
