-- What a process does next that has committed a task after which nothing is ready: the job of the oldest message of its
-- queue, of another run, if a claim would give it without a word. Anything else stays there, for who receives messages.
--
-- Read before anything is written. What cannot be read, here or of that run, is no reason to refuse the commit.
--
-- What the first claim on a run needs that is like the one before, of a task that is called the same: what they have in common, its process
-- has already. one: the job's run, branch and task. Returns whether it is such a claim.
local function look_at_like(one, like, key)
  if like == "" or one.name ~= "main" or one.key ~= key then return false end
  local r = redis.call("HMGET", one.run, "like", "events", "id", "inputs", "created_at", "checkpoint_on")
  if r[1] ~= like or r[2] ~= "1" then return false end
  local b, t = redis.call("HMGET", one.branch, "status", "scope"), redis.call("HMGET", one.record, "state", "attempt", "timeout", "context")
  if t[4] then return false end
  -- As of_run, of_branch, of_task and gathered give them.
  one.r, one.b, one.t = {r[3], [6] = r[4], [11] = r[5], [13] = r[6], [15] = r[2]}, {b[1], [6] = b[2]}, {t[1], t[2], [4] = t[3]}
  one.found, one.like = {}, true
  one.found.context, one.found.recorded, one.found.at_work = {}, {}, 0
  return true
end
local function look_at_waiting(home, queue, run, adapter, environment, like, key)
  local text = redis.call("LINDEX", queue, -1)
  if not text or not may("RPOP", queue) then return nil end
  -- As send.lua writes it. What kombu sent, the processes' own worker reads.
  local body = string.match(text, '^{"body":("%[%[%],.-{}%]"),"content%-encoding":')
  if not body or not string.find(text, '"headers":{"task":"' .. JOB_NAME .. '",', 1, true) then return nil end
  local job = cjson.decode(cjson.decode("[" .. body .. "]")[1])[2]
  local one = {run = run_key(home, job.run), name = job.branch, key = job.task}
  one.branch = branch_key(one.run, one.name)
  one.record = task_key(one.branch, one.key)
  if one.run == run then return nil end
  if not look_at_like(one, like, key) then
    one.r = of_run(one.run, "like")
    if one.r[5] ~= adapter or one.r[14] ~= environment or tonumber(one.r[12] or "1") ~= PROTOCOL then return nil end
    one.b, one.t = of_branch(one.branch), of_task(one.record)
    one.found = gathered(one.run, one.name, one.branch, one.key, one.t)
    set_likeness(one.r, "1")
  end
  if one.b[1] ~= "running" or one.t[1] ~= "queued" or tonumber(one.t[2]) ~= job.attempt then return nil end
  if asked_for(one.r[13], "task_started") then intact_checkpoints(one.branch, one.r[13]) end
  redis.call("XLEN", events_key(one.run))
  redis.call("ZCARD", queued_key(home))
  return one
end
local function waiting(home, queue, run, adapter, environment, like, key)
  local ok, one = pcall(look_at_waiting, home, queue, run, adapter, environment, like, key)
  return ok and one or nil
end
-- Returns what claim.lua does, with its task, attempt, run and branch; of a run that is like the one before {"like", the token, the run, its inputs}.
local function take_waiting(home, queue, one, worker, process, nonce, stamp, at)
  redis.call("RPOP", queue)
  redis.call("ZREM", queued_key(home), queued_ref(one.r[1], one.name, one.key))
  take(home, one.run, one.r, one.name, one.branch, one.b, one.key, one.record, one.t, worker, process, nonce, one.found, stamp, at)
  if one.like then return {"like", tonumber(one.t[7]), one.r[1], one.r[6]} end
  return given(one.r, one.b, one.key, one.t, one.found, one.key, tonumber(one.t[2]), one.r[1], one.name)
end
-- The same of what a worker's process was given with a commit of this nonce, whose answer it did not hear.
local function claimed_with(home, worker, nonce)
  for _, ref in ipairs(redis.call("HKEYS", claims_key(home, worker))) do
    local id, name, key = string.match(ref, "^([^|]*)|([^|]*)|(.*)$")
    local run = run_key(home, id)
    local branch = branch_key(run, name)
    local t = of_task(task_key(branch, key))
    if t[6] == nonce then
      local found = gathered(run, name, branch, key, t)
      local r = of_run(run, "like")
      set_likeness(r, "2")
      return given(r, of_branch(branch), key, t, found, key, tonumber(t[2]), id, name)
    end
  end
end
