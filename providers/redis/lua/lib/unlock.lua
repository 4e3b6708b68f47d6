-- Unlock a task whose prerequisites are committed: it is in flight from here on. Returns the number of its next attempt.
local function open_task(branch, job)
  redis.call("SADD", open_key(branch), job.task)
  local record = task_key(branch, job.task)
  redis.call("HSET", record, "state", "queued")
  -- One that is known was in flight under a plan in which less came before it.
  local attempt = redis.call("HINCRBY", record, "attempt", 1)
  if job.context ~= "[]" then redis.call("HSET", record, "context", job.context) end
  if job.timeout ~= "0" then redis.call("HSET", record, "timeout", job.timeout) end
  if job.pool then redis.call("HSET", record, "pool", job.pool) end
  return attempt
end
-- And its job is sent.
local function unlock(home, run, name, branch, job, at)
  send(home, run, name, job.task, open_task(branch, job), at, job.pool or "")
end
