-- Let a run go on that failed, was cancelled or waits: on its branch, or on a new one that begins at a checkpoint.
--
-- KEYS home run branch bundle
-- ARGV name fields plan parent parent_seq head expected_status expected_seq ready waits tasks_left
-- USES now emit send goes_on release recall lifetime
--
-- name: the branch. parent: "" to go on where it stands, else the branch that the new one leaves at parent_seq.
-- fields: JSON object of fields of the run to set. plan: "" or the new one. ready: JSON list of {task, context, timeout}.
-- waits: JSON list of {task, met}. The frontier was computed from what stood at expected_status and expected_seq.
-- Returns "resumed", "changed" (read again), "no bundle" or "taken" (the branch name).
if redis.call("HGET", run, "status") ~= expected_status then return "changed" end
if parent == "" and redis.call("HGET", branch, "seq") ~= expected_seq then return "changed" end
if parent ~= "" and redis.call("EXISTS", branch) == 1 then return "taken" end
local given = cjson.decode(fields)
local sha = given.bundle or redis.call("HGET", run, "bundle")
if sha ~= "" then
  if redis.call("HEXISTS", bundle, "data") == 0 then return "no bundle" end
  redis.call("HINCRBY", bundle, "active", 1)
end
local at = now()
local id = redis.call("HGET", run, "id")
if parent ~= "" then
  redis.call("SADD", branches_key(run), name)
  redis.call("HSET", branch, "seq", parent_seq, "parent", parent, "parent_seq", parent_seq, "head", head)
end
each_key(run, function(k) redis.call("PERSIST", k) end)
if sha ~= "" then redis.call("PERSIST", bundle) end
local flat = {"status", "running", "error", "", "branch", name}
for field, value in pairs(given) do flat[#flat + 1] = field; flat[#flat + 1] = value end
redis.call("HSET", run, unpack(flat))
redis.call("HDEL", run, "ended_at")
redis.call("ZADD", active_key(home), at, id)
redis.call("ZREM", expiring_key(home), id)
if plan ~= "" then
  redis.call("SET", plan_key(run), plan)
  -- What still runs goes by the old plan: what it unlocks, and that it counts at all, may no longer be so.
  recall(home, run)
end
redis.call("HSET", branch, "left", tasks_left)
redis.call("DEL", waits_key(branch))
for _, wait in ipairs(cjson.decode(waits)) do redis.call("HSET", waits_key(branch), wait.task, wait.met) end
emit(run, "run_resumed", "branch", name, "parent", parent)
for _, job in ipairs(cjson.decode(ready)) do
  local record = task_key(branch, job.task)
  -- A task that never stopped running while the run was over keeps its claim.
  if redis.call("HGET", record, "state") ~= "running" then
    redis.call("SADD", open_key(branch), job.task)
    local attempt = redis.call("HINCRBY", record, "attempt", 1)
    redis.call("HDEL", record, "failures", "crashes", "error")
    redis.call("HSET", record, "state", "queued", "context", job.context, "timeout", job.timeout)
    send(home, run, name, job.task, attempt, at)
  end
end
return "resumed"
