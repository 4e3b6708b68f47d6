-- A run begins: with its first frontier, or not at all.
local function intact_new(home, run, fields, ready)
  redis.call("ZCARD", runs_key(home))
  redis.call("ZCARD", active_key(home))
  intact_queue(home, fields.queue, nil, fields.envelope, ready)
  local branch = branch_key(run, "main")
  if redis.call("EXISTS", branches_key(run), events_key(run), branch, open_key(branch), checkpoints_key(branch), lineage_key(branch)) > 0 then
    redis.call("SCARD", branches_key(run))
    redis.call("XLEN", events_key(run))
    redis.call("HLEN", branch)
    intact_branch(branch)
  end
  intact_tasks(branch, ready)
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
  redis.call("ZADD", runs_key(home), at, run_id)
  redis.call("ZADD", active_key(home), at, run_id)
  local scope = emit(run, "crew_kickoff_started", "branch", "main")
  redis.call("HSET", branch, "status", "running", "seq", 0, "left", tasks_left, "scope", scope)
  if asked_for(fields.checkpoint_on, "crew_kickoff_started") then
    checkpoint(run, "main", branch, "crew_kickoff_started", "", stamp, at)
  end
  local of = {run_id, fields.envelope ~= "", fields.queue, fields.crew, ""}
  for _, job in ipairs(ready) do unlock(home, run, "main", branch, job, at, of) end
end
