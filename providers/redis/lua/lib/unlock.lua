-- What a plan says of a task, as fields of its record and their values.
local function planned(job)
  local fields = {}
  if job.context ~= "[]" then fields = {"context", job.context} end
  if job.timeout ~= "0" then fields[#fields + 1] = "timeout"; fields[#fields + 1] = job.timeout end
  if job.pool then fields[#fields + 1] = "pool"; fields[#fields + 1] = job.pool end
  return fields
end
-- One that is known was in flight under a plan in which less came before it: what that said of it holds no more.
local function forget_planned(record, attempts)
  if attempts > 0 then redis.call("HDEL", record, "context", "timeout", "pool") end
end
-- One that a resume set aside is no longer that. (HMGET, which every caller has called before: a commit does not ask for HGET
-- where a resume by an older version counted none.)
local function put_in_flight(branch, task)
  if redis.call("SADD", open_key(branch), task) == 0 and tonumber(redis.call("HMGET", branch, "aside")[1] or "0") > 0 then
    redis.call("HINCRBY", branch, "aside", -1)
  end
end
-- Unlock a task whose prerequisites are committed: it is in flight from here on. Returns the number of its next attempt.
local function open_task(branch, job)
  local record = task_key(branch, job.task)
  put_in_flight(branch, job.task)
  local attempt = redis.call("HINCRBY", record, "attempt", 1)
  forget_planned(record, attempt - 1)
  redis.call("HSET", record, "state", "queued", unpack(planned(job)))
  return attempt
end
-- And its job is sent. of: nil, or what send reads of the run.
local function unlock(home, run, name, branch, job, at, of)
  send(home, run, name, job.task, open_task(branch, job), at, job.pool or "", of)
end
