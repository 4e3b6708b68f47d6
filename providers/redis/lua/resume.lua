-- Resume a run that failed, was cancelled or waits: on a branch as it is, or on a new one that begins at a
-- checkpoint. That becomes its current branch, unless the present one is still running.
--
-- KEYS home run branch bundle
-- ARGV name:text fields:fields plan:text parent:text parent_seq:int start:text expected_status:text expected_seq:int expected_plan:text expected_branches:int? rerun_masks:map ready:tasks waits:waits tasks_left:int stamp:text
-- USES now queued emit send is_active close account release recall journals checkpoint wait lifetime begin intact migrate_run carry lost
--
-- name: the branch. parent: "" to continue as it is, else the branch that the new one leaves at parent_seq.
-- fields: JSON object of fields of the run to set. plan: "" or the new one. ready: JSON list of {task, context, timeout, pool}.
-- rerun_masks: JSON object of the rerun masks of branches that have one (stored as todo). waits: JSON list of {task, met}.
-- All that was computed from what stood at expected_status (of the branch; of the run for a new one), expected_seq,
-- expected_plan and, for a new plan, expected_branches: their number.
-- Returns "resumed", "changed" (read again), "busy" (new code, while a branch runs on the old), "no bundle" or "taken"
-- (the branch name).
local r = redis.call("HMGET", run, "status", "id", "plan", "bundle", "live", "keep")
local b = redis.call("HMGET", branch, "status", "seq", "done", "edited", "parent", "parent_seq")
if r[3] ~= expected_plan then return "changed" end
if parent == "" and (b[1] == "running" or b[1] == "waiting" or b[1] ~= expected_status or b[2] ~= expected_seq) then return "changed" end
if parent ~= "" and (r[1] == "running" or r[1] ~= expected_status) then return "changed" end
if parent ~= "" and b[1] then return "taken" end
if plan ~= "" and redis.call("SCARD", branches_key(run)) ~= tonumber(expected_branches) then return "changed" end
if (fields_text ~= "{}" or plan ~= "") and tonumber(r[5]) > 0 then return "busy" end
local sha = fields.bundle or r[4]
if sha ~= "" and redis.call("HEXISTS", bundle, "data") == 0 then return "no bundle" end
-- A plan that stays stands with the new code, too.
local stays = plan == "" and fields.bundle and redis.call("HGET", bundle_key(home, r[4]), "plan:" .. r[3])
intact_run(home, run, name)
intact_ends(home, run, plan ~= "" and math.huge or 0)
intact_branch(branch)
intact_tasks(branch, ready)
local at = now()
local recorded = {}
for _, job in ipairs(parent ~= "" and ready or {}) do
  recorded[job.task] = recorded_by(branch_key(run, parent), branch, job.task, parent_seq)
end
local before = gone_before(run, parent ~= "" and parent or b[5], parent ~= "" and parent_seq or b[6])
migrate_run(home, run, at)
local flat = {}
if r[1] ~= "running" then flat = {"branch", name} end
for field, value in pairs(fields) do flat[#flat + 1] = field; flat[#flat + 1] = value end
if #flat > 0 then redis.call("HSET", run, unpack(flat)) end
if parent ~= "" then
  redis.call("SADD", branches_key(run), name)
  redis.call("HSET", branch, "seq", parent_seq, "parent", parent, "parent_seq", parent_seq, "from", start, "created_at", at)
  if before > 0 then redis.call("HSET", branch, "before", before) end
  local inputs = redis.call("HGET", branch_key(run, parent), "inputs")
  if inputs then redis.call("HSET", branch, "inputs", inputs) end
end
for other, mask in pairs(rerun_masks) do redis.call("HSET", branch_key(run, other), "todo", mask) end
begin(home, run, name, at)
if parent ~= "" or plan ~= "" then redis.call("HINCRBY", run, "tasks", tasks_left) end
if stays then redis.call("HSETNX", bundle, "plan:" .. r[3], stays) end
if plan ~= "" then
  if sha == "" then
    redis.call("SET", plan_key(run), plan)
  else
    redis.call("HSET", bundle, "plan:" .. (fields.plan or r[3]), plan)
    redis.call("DEL", plan_key(run))
  end
  -- What still runs follows the old plan: what it unlocks, and whether it counts at all, may have changed.
  for _, other in ipairs(redis.call("SMEMBERS", branches_key(run))) do
    recall(home, run, other)
    redis.call("DEL", shared_key(branch_key(run, other)))
  end
end
if parent == "" then
  forget_lost(branch, b[3], b[4])
  if before > 0 then redis.call("HSET", branch, "before", before, "holes", 1) end
end
redis.call("DEL", waits_key(branch))
for _, wait in ipairs(waits) do redis.call("HSET", waits_key(branch), wait.task, wait.met) end
redis.call("HSET", branch, "scope", emit(run, "run_resumed", "branch", name, "parent_branch", parent))
local asked, goes_on_with = 0, {}
for _, job in ipairs(ready) do
  local record, before = task_key(branch, job.task), task_key(branch_key(run, parent ~= "" and parent or name), job.task)
  local was = redis.call("HMGET", before, "state", "failed")
  if parent ~= "" then carry(branch_key(run, parent), branch, job.task, recorded[job.task], r[6]) end
  -- A task that never stopped running while its branch was over keeps its claim; one that asked waits for the answer.
  local state = redis.call("HGET", record, "state")
  goes_on_with[job.task] = true
  if state == "asked" then asked = asked + 1 end
  if state ~= "running" and state ~= "asked" then
    redis.call("SADD", open_key(branch), job.task)
    -- What was given back has the number of its next attempt. Of one that was sent, and never claimed, a second message
    -- may be on its way: it finds that the task is taken.
    local attempt = redis.call("HGET", record, "attempt") or redis.call("HINCRBY", record, "attempt", 1)
    redis.call("HDEL", record, "failures", "crashes", "handed", "reached", "error", "trace", "by", "ended", "pool")
    -- An attempt that failed is replayed; how often it failed says how often more may be asked.
    local failed = tonumber(was[2] or "0") + (was[1] == "failed" and 1 or 0)
    if failed > 0 then redis.call("HSET", record, "failed", failed) end
    redis.call("HSET", record, "state", "queued", "context", job.context, "timeout", job.timeout)
    if job.pool then redis.call("HSET", record, "pool", job.pool) end
    send(home, run, name, job.task, attempt, at, job.pool or "")
  end
end
-- What is in flight and not to be done now, by this plan, is set aside: nothing comes of it, and its question stands no more.
local aside = 0
for _, task in ipairs(redis.call("SMEMBERS", open_key(branch))) do
  if not goes_on_with[task] then
    aside = aside + 1
    local record = task_key(branch, task)
    if redis.call("HDEL", record, "step", "question") > 0 then redis.call("HSET", record, "state", "held") end
  end
end
redis.call("HSET", branch, "left", tasks_left, "asked", asked, "aside", aside)
if asked > 0 then wait_if_asked(run, name, branch, tonumber(tasks_left), stamp, at) end
return "resumed"
