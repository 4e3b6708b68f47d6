-- Take a claim back and make the task runnable elsewhere: the next attempt has a new number, the journal stays.
-- A step that was begun and not recorded is in doubt: it may have been done, and will be done again.
local function give_up(home, run, name, task, worker)
  local record = task_key(branch_key(run, name), task)
  close_open(run, name, record)
  account(run, name, task, "in_doubt", redis.call("HGET", record, "begun"))
  redis.call("HDEL", record, "token", "worker", "process", "nonce", "begun")
  redis.call("HDEL", claims_key(home, worker), redis.call("HGET", run, "id") .. "|" .. name .. "|" .. task)
  -- Written after the run was over, the record and its journal would outlive it.
  local ttl = redis.call("PTTL", run)
  if ttl > 0 then
    redis.call("PEXPIRE", record, ttl)
    redis.call("PEXPIRE", journal_key(branch_key(run, name), task), ttl)
  end
  return redis.call("HINCRBY", record, "attempt", 1)
end
local function requeue(home, run, name, task, attempt, at)
  local record = task_key(branch_key(run, name), task)
  if goes_on(run, name) then
    redis.call("HSET", record, "state", "queued")
    send(home, run, name, task, attempt, at)
  else
    redis.call("HSET", record, "state", "held")
  end
end
