-- End a run: nothing of it is sent any more, and its keys get a lifetime.
local function hold(home, run, name, task)
  local branch = branch_key(run, name)
  local ref = redis.call("HGET", run, "id") .. "|" .. name .. "|" .. task
  redis.call("HSET", task_key(branch, task), "state", "held")
  redis.call("ZREM", queued_key(home), ref)
  redis.call("ZREM", due_key(home), ref)
end
local function finish(home, run, status, err, at)
  local r = redis.call("HMGET", run, "id", "keep", "bundle")
  redis.call("HSET", run, "status", status, "error", err, "ended_at", at)
  for _, name in ipairs(redis.call("SMEMBERS", branches_key(run))) do
    local branch = branch_key(run, name)
    for _, task in ipairs(redis.call("SMEMBERS", open_key(branch))) do
      local state = redis.call("HGET", task_key(branch, task), "state")
      if state == "queued" or state == "delayed" then hold(home, run, name, task) end
    end
  end
  redis.call("ZREM", active_key(home), r[1])
  redis.call("ZADD", expiring_key(home), at + r[2], r[1])
  each_key(run, function(k) redis.call("PEXPIRE", k, r[2]) end)
  -- The bundle outlives its last run as long as that run may still be resumed.
  local bundle = bundle_key(home, r[3])
  if r[3] ~= "" and redis.call("HINCRBY", bundle, "active", -1) <= 0 then
    redis.call("HSET", bundle, "active", 0)
    local left = math.max(tonumber(redis.call("HGET", bundle, "needed_until") or "0"), at + r[2])
    redis.call("HSET", bundle, "needed_until", string.format("%.0f", left))
    redis.call("PEXPIREAT", bundle, string.format("%.0f", left))
  elseif r[3] ~= "" then
    local left = math.max(tonumber(redis.call("HGET", bundle, "needed_until") or "0"), at + r[2])
    redis.call("HSET", bundle, "needed_until", string.format("%.0f", left))
  end
end
