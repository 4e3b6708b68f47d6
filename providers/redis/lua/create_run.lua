-- Accept a run: once this returned, the run ends or waits for a person.
--
-- KEYS home run bundle
-- ARGV run_id fields plan ready tasks_left stamp
-- USES now queued emit send unlock checkpoint
--
-- fields: JSON object of the run's own fields. ready: JSON list of {task, context, timeout} to run first.
-- Returns "created", "exists" or "no bundle".
if redis.call("EXISTS", run) == 1 then return "exists" end
local given = cjson.decode(fields)
if given.bundle ~= "" then
  if redis.call("HEXISTS", bundle, "data") == 0 then return "no bundle" end
  redis.call("HINCRBY", bundle, "active", 1)
  redis.call("PERSIST", bundle)
end
local at = now()
local flat = {"id", run_id, "status", "running", "created_at", at, "branch", "main", "live", 1}
for field, value in pairs(given) do flat[#flat + 1] = field; flat[#flat + 1] = value end
redis.call("HSET", run, unpack(flat))
redis.call("SET", plan_key(run), plan)
redis.call("SADD", branches_key(run), "main")
local branch = branch_key(run, "main")
redis.call("HSET", branch, "status", "running", "seq", 0, "left", tasks_left)
redis.call("ZADD", runs_key(home), at, run_id)
redis.call("ZADD", active_key(home), at, run_id)
redis.call("HSET", branch, "scope", emit(run, "crew_kickoff_started", "branch", "main"))
checkpoint(run, "main", branch, "crew_kickoff_started", "", stamp, at)
for _, job in ipairs(cjson.decode(ready)) do unlock(home, run, "main", branch, job, at) end
return "created"
