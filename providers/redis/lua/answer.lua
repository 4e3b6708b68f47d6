-- Record a person's answer in the journal of the task that asked, and resume the task and its branch.
--
-- KEYS home run branch task journal
-- ARGV name:text key:text step:text text:text
-- USES now queued emit send intact is_active migrate_run
--
-- step: that of the question which the person read. text: the answer as JSON.
-- Returns "answered", or why not: "gone", "not asked", "changed" (another question by now) or the branch's status, if it is
-- over.
local status = redis.call("HGET", branch, "status")
if not status then return "gone" end
local t = redis.call("HMGET", task, "state", "step", "attempt", "started")
if t[1] ~= "asked" then return "not asked" end
if t[2] ~= step then return "changed" end
if status ~= "running" and status ~= "waiting" then return status end
intact_run(home, run, name)
redis.call("HLEN", journal)
migrate_run(home, run, now())
redis.call("HSET", journal, step, text)
redis.call("HDEL", task, "step", "question")
redis.call("HSET", task, "state", "queued")
redis.call("HINCRBY", branch, "asked", -1)
if status == "waiting" then
  redis.call("HSET", branch, "status", "running")
  if redis.call("HGET", run, "branch") == name then redis.call("HSET", run, "status", "running") end
end
emit(run, "task_answered", "branch", name, "task", key, "parent", t[4] or 0)
send(home, run, name, key, t[3], now())
return "answered"
