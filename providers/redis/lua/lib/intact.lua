-- Redis refuses a write to a key of another type, also in the middle of a script. So what a script may write is looked at
-- before its first write: where a key is not ours (a queue that is called like one of ours), it fails and has
-- changed nothing. Each look costs the same, however much the key holds. What is called for each task and each step looks by
-- itself, at no more than it needs.
--
-- tasks: those that may be sent; nil for any.
local function intact_queues(queue, tasks)
  redis.call("LLEN", queue)
  needs_on(queue, "LPUSH")
  local waits = not tasks
  for _, job in ipairs(tasks or {}) do waits = waits or job.pool end
  if not waits then return end
  local beside = queue_for(queue, "thread")
  redis.call("LLEN", beside)
  needs_on(beside, "LPUSH")
end
local function intact_queue(home, queue, direct, envelope, tasks)
  redis.call("ZCARD", queued_key(home))
  if direct or envelope ~= "" then intact_queues(queue, tasks) else redis.call("ZCARD", outbox_key(home)) end
end
local function intact_run(home, run, name)
  local r = redis.call("HMGET", run, "queue", "direct", "id", "envelope")
  if not r[3] then error({err = "ERR " .. SCRIPT .. ".lua: there is no run here"}) end
  redis.call("HLEN", branch_key(run, name))
  redis.call("XLEN", events_key(run))
  redis.call("HLEN", ledger_key(run))
  intact_queue(home, r[1], r[2], r[4])
end
local function intact_checkpoints(branch, on)
  if not on or on == "" then return end
  redis.call("ZCARD", checkpoints_key(branch))
  redis.call("HLEN", lineage_key(branch))
end
local function intact_branch(branch)
  redis.call("HLEN", outputs_key(branch))
  redis.call("LLEN", commit_log_key(branch))
  redis.call("SCARD", open_key(branch))
  redis.call("HLEN", waits_key(branch))
  intact_checkpoints(branch, "any")
end
local function intact_tasks(branch, tasks)
  for _, job in ipairs(tasks) do redis.call("HLEN", task_key(branch, job.task or job)) end
end
local function intact_open(home, branch)
  local open = redis.call("SMEMBERS", open_key(branch))
  for _, task in ipairs(open) do
    local worker = redis.call("HGET", task_key(branch, task), "worker")
    if worker then
      redis.call("HLEN", claims_key(home, worker))
      redis.call("HLEN", worker_key(home, worker))
    end
  end
end
-- Returns whether it refuses new runs.
local function intact_batch(home, batch)
  local stopped = redis.call("HEXISTS", batch_key(home, batch), "stopped") == 1
  redis.call("ZCARD", batch_runs_key(home, batch))
  redis.call("XLEN", batch_ended_key(home, batch))
  return stopped
end
-- A run of one branch, of which nothing is in flight any more, ends. Returns what finish.lua reads of its bundle.
local function intact_last(home, bundle, batch)
  redis.call("ZCARD", active_key(home))
  redis.call("ZCARD", expiring_key(home))
  if batch then
    redis.call("HLEN", batch_key(home, batch))
    redis.call("XLEN", batch_ended_key(home, batch))
  end
  return redis.call("HMGET", bundle_key(home, bundle), "needed_until", "active")
end
-- live: of how many branches that run or wait at most the run is looked at as a whole: its keys get a lifetime, or lose it.
local function intact_ends(home, run, live)
  local r = redis.call("HMGET", run, "bundle", "live", "batch")
  for _, index in ipairs({queued_key(home), due_key(home), outbox_key(home), active_key(home), expiring_key(home)}) do
    redis.call("ZCARD", index)
  end
  redis.call("SCARD", branches_key(run))
  if tonumber(r[2]) > live then return end
  redis.call("HLEN", bundle_key(home, r[1]))
  if r[3] then intact_batch(home, r[3]) end
  for _, name in ipairs(redis.call("SMEMBERS", branches_key(run))) do
    local branch = branch_key(run, name)
    redis.call("HLEN", branch)
    redis.call("HLEN", shared_key(branch))
    intact_branch(branch)
    intact_open(home, branch)
  end
end
