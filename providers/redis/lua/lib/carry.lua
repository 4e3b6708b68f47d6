-- What a task had recorded on a branch comes along to one that leaves it there, and is not paid again.
--
-- Read it, and look at where it is to be written. upto: "" for all of it, or the sequence of a checkpoint: of a task that has
-- checkpoints within it, what was recorded by then.
local function recorded_by(from, to, task, upto)
  local found = {steps = redis.call("ZRANGEBYSCORE", steps_key(from, task), "-inf", upto == "" and "+inf" or upto, "WITHSCORES")}
  redis.call("HLEN", journal_key(to, task))
  redis.call("ZCARD", steps_key(to, task))
  if upto == "" or redis.call("EXISTS", steps_key(from, task)) == 0 then return found end
  found.fields = {}
  for i = 1, #found.steps, 2000 do
    local names = {}
    for at = i, math.min(i + 1999, #found.steps), 2 do names[#names + 1] = found.steps[at] end
    for at, value in ipairs(redis.call("HMGET", journal_key(from, task), unpack(names))) do
      if value then
        found.fields[#found.fields + 1] = names[at]
        found.fields[#found.fields + 1] = value
      end
    end
  end
  return found
end
local function carry(from, to, task, found, keep)
  if not found.fields then
    if redis.call("COPY", journal_key(from, task), journal_key(to, task)) == 1 then redis.call("PERSIST", journal_key(to, task)) end
  end
  for i = 1, #(found.fields or {}), 2000 do
    redis.call("HSET", journal_key(to, task), unpack(found.fields, i, math.min(i + 1999, #found.fields)))
  end
  for i = 1, #found.steps, 2 do redis.call("ZADD", steps_key(to, task), found.steps[i + 1], found.steps[i]) end
  if #found.steps > 0 then
    redis.call("PEXPIRE", steps_key(to, task), countable(keep))
    redis.call("HSET", task_key(to, task), "numbered", 1)
  end
end
