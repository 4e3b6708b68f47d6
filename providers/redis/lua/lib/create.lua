-- A run begins: with its first frontier, or not at all.
local function intact_new(home, run, fields, ready)
  for _, index in ipairs({runs_key(home), active_key(home), queued_key(home), outbox_key(home)}) do redis.call("ZCARD", index) end
  local branch = branch_key(run, "main")
  redis.call("SCARD", branches_key(run))
  redis.call("XLEN", events_key(run))
  redis.call("HLEN", branch)
  intact_branch(branch)
  intact_tasks(branch, ready)
  if fields.envelope ~= "" then intact_queues(fields.queue, ready) end
end
local function create(home, run, run_id, bundle, fields, plan, ready, tasks_left, stamp, at)
  local flat = {"id", run_id, "status", "running", "created_at", at, "branch", "main", "live", 1, "protocol", PROTOCOL, "tasks", tasks_left}
  for field, value in pairs(fields) do
    -- Scripts of before would fill in an envelope: they put the job into the outbox instead.
    if field == "envelope" and value ~= "" then flat[#flat + 1] = "direct"; flat[#flat + 1] = "1"; value = "" end
    flat[#flat + 1] = field; flat[#flat + 1] = value
  end
  local branch = branch_key(run, "main")
  redis.call("HSET", run, unpack(flat))
  if fields.bundle ~= "" then
    redis.call("HINCRBY", bundle, "active", 1)
    redis.call("HSETNX", bundle, "plan:" .. fields.plan, plan)
    redis.call("PERSIST", bundle)
  else
    redis.call("SET", plan_key(run), plan)
  end
  redis.call("SADD", branches_key(run), "main")
  redis.call("HSET", branch, "status", "running", "seq", 0, "left", tasks_left)
  redis.call("ZADD", runs_key(home), at, run_id)
  redis.call("ZADD", active_key(home), at, run_id)
  redis.call("HSET", branch, "scope", emit(run, "crew_kickoff_started", "branch", "main"))
  checkpoint(run, "main", branch, "crew_kickoff_started", "", stamp, at)
  for _, job in ipairs(ready) do unlock(home, run, "main", branch, job, at) end
end
