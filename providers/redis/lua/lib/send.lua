-- Make a job runnable. It is indexed as queued; its message is pushed here if the broker is this Redis (the run is then
-- "direct"), else it waits in the outbox for a worker to send it. pool: the task's, if it is known here; of: the same of the run, and
-- how many it has sent then, where that is stored already.
local function quoted(text) return string.sub(cjson.encode(text), 2, -2) end
-- Whether messages are pushed here. A run of an older version has a whole envelope, of the same message.
local function is_direct(direct, envelope) return direct or envelope ~= "" end
-- The message of a job whose run is direct, and its queue; of: as for send.
local function message_of(name, task, attempt, pool, of)
  local queue = queue_for(of[3], pool)
  local values = {RUN = of[1], BRANCH = quoted(name), TASK = quoted(task), CREW = quoted(of[4]), QUEUE = quoted(queue), ATTEMPT = attempt,
                  COPY = of[6]}
  -- A long branch name would stand in a message seven times: the job's id has its hash.
  local short = #name > 12 and string.sub(redis.sha1hex(name), 1, 8) or values.BRANCH
  values.ID = of[1] .. "." .. short .. "." .. values.TASK .. "." .. attempt
  values.BODYBRANCH, values.BODYTASK = quoted(values.BRANCH), quoted(values.TASK)
  return MESSAGE, queue
end
local function send(home, run, name, task, attempt, at, pool, of)
  local r = of or redis.call("HMGET", run, "id", "direct", "queue", "crew", "envelope")
  local ref = r[1] .. "|" .. name .. "|" .. task
  redis.call("ZADD", queued_key(home), at, queued_ref(r[1], name, task))
  if not is_direct(r[2], r[5]) then
    redis.call("ZADD", outbox_key(home), at, ref .. "|" .. attempt)
    return
  end
  pool = pool or redis.call("HGET", task_key(branch_key(run, name), task), "pool")
  r[6] = r[6] or redis.call("HINCRBY", run, "sends", 1)
  local message, queue = message_of(name, task, attempt, pool, r)
  redis.call("LPUSH", queue, message)
end
