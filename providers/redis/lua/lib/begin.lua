-- A branch starts to run, or resumes. With the first one of a run, the run's keys and its bundle expire no more.
local function begin(home, run, name, at)
  local branch = branch_key(run, name)
  local r = redis.call("HMGET", run, "id", "branch", "bundle", "batch")
  redis.call("HSET", branch, "status", "running")
  redis.call("HDEL", branch, "error", "ended_at")
  if r[2] == name then
    redis.call("HSET", run, "status", "running", "error", "")
    redis.call("HDEL", run, "ended_at")
  end
  if redis.call("HINCRBY", run, "live", 1) > 1 then return end
  redis.call("ZADD", active_key(home), at, r[1])
  redis.call("ZREM", expiring_key(home), r[1])
  each_key(run, function(k) redis.call("PERSIST", k) end)
  if r[4] then
    redis.call("HINCRBY", batch_key(home, r[4]), "active", 1)
    for _, k in ipairs({batch_key(home, r[4]), batch_runs_key(home, r[4]), batch_ended_key(home, r[4])}) do redis.call("PERSIST", k) end
  end
  if r[3] ~= "" then
    redis.call("HINCRBY", bundle_key(home, r[3]), "active", 1)
    redis.call("PERSIST", bundle_key(home, r[3]))
  end
end
