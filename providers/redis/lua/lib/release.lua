-- Take a claim back and make the task runnable elsewhere: the next attempt has a new number, the journal stays.
-- A step that was begun and not recorded is in doubt: it may have been done, and will be done again.
-- goes_on: whether another worker goes on where this one was stopped. out: nil, or the calls of models that had left its
-- process: one that was noted and never left is in no doubt; and steps of which the note may be missing.
local function doubtful(begun, out)
  if not out then return begun end
  local said, found = {}, {}
  for _, one in ipairs(out) do said[cjson.encode({one[1], one[2], one[3]})] = one end
  for _, one in ipairs(begun or {}) do
    local which = cjson.encode({one[1], one[2], one[3]})
    local many = said[which] and said[which][4] or 0
    one[4] = (one[1] == "model" and math.min or math.max)(one[4], many)
    said[which] = nil
    if one[4] > 0 then found[#found + 1] = one end
  end
  for _, one in pairs(said) do
    if one[1] ~= "model" and one[4] > 0 then found[#found + 1] = one end
  end
  return found
end
local function give_up(home, run, name, task, worker, goes_on, out)
  local record = task_key(branch_key(run, name), task)
  close_open(run, name, record, goes_on)
  account(run, name, task, "in_doubt", doubtful(noted(redis.call("HGET", record, "begun")), out))
  redis.call("HDEL", record, "token", "worker", "process", "nonce", "begun", "copies")
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
