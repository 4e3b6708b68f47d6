-- A run begins: with its first frontier, or not at all. What all that begin in one script have in common is looked at, and
-- written, once.
local function intact_beginning(home, fields, ready)
  redis.call("ZCARD", runs_key(home))
  redis.call("ZCARD", active_key(home))
  intact_queue(home, fields.queue, nil, fields.envelope, ready)
end
-- Whether a run that begins has none of its keys yet: then there is nothing to look at.
local function is_unknown(run, ready)
  local branch = branch_key(run, "main")
  local keys = {run, branches_key(run), events_key(run), branch, open_key(branch), checkpoints_key(branch), lineage_key(branch)}
  -- More would not go into one command.
  if #ready > 1000 then return false end
  for _, job in ipairs(ready) do keys[#keys + 1] = task_key(branch, job.task) end
  return redis.call("EXISTS", unpack(keys)) == 0
end
local function intact_new(run, ready)
  local branch = branch_key(run, "main")
  if redis.call("EXISTS", branches_key(run), events_key(run), branch, open_key(branch), checkpoints_key(branch), lineage_key(branch)) > 0 then
    redis.call("SCARD", branches_key(run))
    redis.call("XLEN", events_key(run))
    redis.call("HLEN", branch)
    intact_branch(branch)
  end
  intact_tasks(branch, ready)
end
-- many: how many runs of this bundle begin.
local function begin_bundle(bundle, fields, plan, many)
  if fields.bundle == "" then return end
  redis.call("HINCRBY", bundle, "active", many)
  redis.call("HSETNX", bundle, "plan:" .. fields.plan, plan)
  redis.call("PERSIST", bundle)
end
local function create(home, run, run_id, fields, plan, ready, tasks_left, stamp, at)
  local flat = {"id", run_id, "status", "running", "created_at", at, "branch", "main", "live", 1, "protocol", PROTOCOL, "tasks", tasks_left,
                "events", 1}
  for field, value in pairs(fields) do
    -- Scripts of before would fill in an envelope: they put the job into the outbox instead.
    if field == "envelope" and value ~= "" then
      for _, one in ipairs({"direct", "1", "sends", #ready}) do flat[#flat + 1] = one end
      value = ""
    end
    flat[#flat + 1] = field; flat[#flat + 1] = value
  end
  local branch = branch_key(run, "main")
  redis.call("HSET", run, unpack(flat))
  if fields.bundle == "" then redis.call("SET", plan_key(run), plan) end
  redis.call("SADD", branches_key(run), "main")
  redis.call("ZADD", runs_key(home), at, run_id)
  redis.call("ZADD", active_key(home), at, run_id)
  local scope = append(run, 1, "crew_kickoff_started", "branch", "main")
  redis.call("HSET", branch, "status", "running", "seq", 0, "left", tasks_left, "scope", scope)
  if asked_for(fields.checkpoint_on, "crew_kickoff_started") then
    checkpoint(run, "main", branch, "crew_kickoff_started", "", stamp, at)
  end
  local of = {run_id, fields.envelope ~= "", fields.queue, fields.crew, ""}
  for i, job in ipairs(ready) do
    of[6] = i
    redis.call("SADD", open_key(branch), job.task)
    redis.call("HSET", task_key(branch, job.task), "attempt", 1, "state", "queued", unpack(planned(job)))
    send(home, run, "main", job.task, 1, at, job.pool or "", of)
  end
end
