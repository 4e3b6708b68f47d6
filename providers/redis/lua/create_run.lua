-- Accept a run: once this returned, the run ends or waits for a person.
--
-- KEYS home run bundle
-- ARGV run_id:text fields:run_fields plan:text ready:tasks tasks_left:int stamp:text
-- USES now queued emit send unlock checkpoint intact
--
-- fields: JSON object of the run's own fields. ready: JSON list of {task, context, timeout} to run first.
-- Returns "created", "exists" or "no bundle".
if redis.call("EXISTS", run) == 1 then return "exists" end
if fields.bundle ~= "" and redis.call("HEXISTS", bundle, "data") == 0 then return "no bundle" end
local at = now()
local flat = {"id", run_id, "status", "running", "created_at", at, "branch", "main", "live", 1, "protocol", PROTOCOL, "tasks", tasks_left}
-- Scripts of before would fill in an envelope: they put the job into the outbox instead.
local direct = fields.envelope ~= ""
if direct then fields.direct, fields.envelope = "1", "" end
for field, value in pairs(fields) do flat[#flat + 1] = field; flat[#flat + 1] = value end
for _, index in ipairs({runs_key(home), active_key(home), queued_key(home), outbox_key(home)}) do redis.call("ZCARD", index) end
local branch = branch_key(run, "main")
redis.call("SCARD", branches_key(run))
redis.call("XLEN", events_key(run))
redis.call("HLEN", branch)
intact_branch(branch)
intact_tasks(branch, ready)
if direct then redis.call("LLEN", fields.queue) end
redis.call("HSET", run, unpack(flat))
if fields.bundle ~= "" then
  redis.call("HINCRBY", bundle, "active", 1)
  redis.call("PERSIST", bundle)
end
redis.call("SET", plan_key(run), plan)
redis.call("SADD", branches_key(run), "main")
redis.call("HSET", branch, "status", "running", "seq", 0, "left", tasks_left)
redis.call("ZADD", runs_key(home), at, run_id)
redis.call("ZADD", active_key(home), at, run_id)
redis.call("HSET", branch, "scope", emit(run, "crew_kickoff_started", "branch", "main"))
checkpoint(run, "main", branch, "crew_kickoff_started", "", stamp, at)
for _, job in ipairs(ready) do unlock(home, run, "main", branch, job, at) end
return "created"
