-- What a process does next that has committed a task after which nothing is ready: the job of the oldest message of its
-- queue, of another run, if a claim would give it without a word. Anything else stays there, for who receives messages.
--
-- Read before anything is written. What cannot be read, here or of that run, is no reason to refuse the commit.
local function look_at_waiting(home, queue, run, adapter, environment)
  local text = redis.call("LINDEX", queue, -1)
  if not text then return nil end
  -- As send.lua writes it. What kombu sent, the processes' own worker reads.
  local body = string.match(text, '^{"body":("%[%[%],.-{}%]"),"content%-encoding":')
  if not body or not string.find(text, '"headers":{"task":"' .. JOB_NAME .. '",', 1, true) then return nil end
  local job = cjson.decode(cjson.decode("[" .. body .. "]")[1])[2]
  local one = {run = run_key(home, job.run), name = job.branch, key = job.task}
  one.r, one.branch = of_run(one.run), branch_key(one.run, one.name)
  if one.run == run then return nil end
  if one.r[5] ~= adapter or one.r[14] ~= environment or tonumber(one.r[12] or "1") ~= PROTOCOL then return nil end
  one.record = task_key(one.branch, one.key)
  one.b, one.t = of_branch(one.branch), of_task(one.record)
  if one.b[1] ~= "running" or one.t[1] ~= "queued" or tonumber(one.t[2]) ~= job.attempt then return nil end
  one.found = gathered(one.run, one.name, one.branch, one.key, one.t)
  if asked_for(one.r[13], "task_started") then intact_checkpoints(one.branch, one.r[13]) end
  redis.call("XLEN", events_key(one.run))
  redis.call("ZCARD", queued_key(home))
  return one
end
local function waiting(home, queue, run, adapter, environment)
  local ok, one = pcall(look_at_waiting, home, queue, run, adapter, environment)
  return ok and one or nil
end
-- Returns what claim.lua does, with its task, attempt, run and branch.
local function take_waiting(home, queue, one, worker, process, nonce, stamp, at)
  redis.call("RPOP", queue)
  redis.call("ZREM", queued_key(home), queued_ref(one.r[1], one.name, one.key))
  take(home, one.run, one.r, one.name, one.branch, one.b, one.key, one.record, one.t, worker, process, nonce, one.found, stamp, at)
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
      return given(of_run(run), of_branch(branch), key, t, found, key, tonumber(t[2]), id, name)
    end
  end
end
