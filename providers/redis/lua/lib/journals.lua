-- A checkpoint that was written within a task is a position in its journal: the steps whose number is at most its sequence.
-- Once the task is done, its journal is kept for as long as such a checkpoint of its branch is, and no longer than a run.
--
-- Whether some of a run's triggers come within its tasks. on: with commas around.
local function within_tasks(on)
  for trigger in string.gmatch(on or "", "[^,]+") do
    if not (string.find(trigger, "^task_") or string.find(trigger, "^crew_") or string.find(trigger, "^flow_") or
            string.find(trigger, "^SIG")) then return true end
  end
  return false
end
-- A run of an older version may ask to be kept for longer than Redis can count.
local function countable(keep) return string.format("%.0f", math.min(tonumber(keep), 1e15)) end
-- Number the steps that no checkpoint of the task had before this one.
local function number_steps(branch, key, names, seq, keep)
  for from = 1, #names, 1000 do
    local numbered = {}
    for i = from, math.min(from + 999, #names) do
      numbered[#numbered + 1] = seq
      numbered[#numbered + 1] = names[i]
    end
    redis.call("ZADD", steps_key(branch, key), "NX", unpack(numbered))
  end
  -- Each of these expires by itself: a worker of an older version does not know it.
  redis.call("PEXPIRE", steps_key(branch, key), countable(keep))
end
-- The task is committed.
local function keep_journal(branch, key, seq, keep)
  redis.call("ZADD", journals_key(branch), seq, key)
  for _, k in ipairs({journals_key(branch), journal_key(branch, key), steps_key(branch, key)}) do redis.call("PEXPIRE", k, countable(keep)) end
end
-- The oldest checkpoints of the branch are gone, and with them what only they needed.
-- (Where the key is not ours, the answer is an error, and no list: nothing is dropped.)
local function drop_journals(branch)
  local oldest = redis.call("ZRANGE", checkpoints_key(branch), 0, 0, "WITHSCORES")[2] or "+inf"
  local done = redis.pcall("ZRANGEBYSCORE", journals_key(branch), "-inf", oldest)
  for _, key in ipairs(done) do
    redis.call("DEL", journal_key(branch, key), steps_key(branch, key))
    redis.call("ZREM", journals_key(branch), key)
  end
end
