-- Send the tasks whose next attempt has come.
--
-- KEYS home due
-- ARGV limit:int
-- USES now queued send intact try
--
-- Returns {how many, 1 if a key that holds another type kept it from sending some}.
local at = now()
local refs = redis.call("ZRANGEBYSCORE", due, "-inf", at, "LIMIT", 0, limit)
for _, ref in ipairs(refs) do
  local run_id, name, key = string.match(ref, "^([^|]*)|([^|]*)|(.*)$")
  local run = run_key(home, run_id)
  local record = task_key(branch_key(run, name), key)
  local state = asked("HGET", record, "state")
  if state ~= "delayed" then
    redis.call("ZREM", due, ref)
  elseif not try(intact_run, home, run, name) then
    redis.call("ZADD", due, at + 1000, ref)  -- it does not hold up the tasks of others
  else
    redis.call("ZREM", due, ref)
    redis.call("HSET", record, "state", "queued")
    send(home, run, name, key, redis.call("HGET", record, "attempt"), at)
  end
end
return {#refs, overwritten}
