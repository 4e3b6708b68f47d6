-- A task failed for good: its branch fails with the reason. What else is running goes on to its commit.
--
-- KEYS home run branch task
-- ARGV name key token worker replayed reason stamp
-- USES now emit refuse send goes_on release checkpoint lifetime finish
--
-- Returns {"failed"} or {"refused"}.
if redis.call("HGET", task, "token") ~= token then return refuse(run, name, key, token, "fail") end
local at = now()
if replayed ~= "0" then redis.call("HINCRBY", run, "replayed", replayed) end
redis.call("HSET", task, "begun", 0)
give_up(home, run, name, key, worker)
redis.call("HSET", task, "state", "failed", "error", reason)
emit(run, "task_failed", "branch", name, "task", key, "reason", reason)
checkpoint(run, name, branch, "task_failed", key, stamp, at)
if goes_on(run, name) then
  emit(run, "crew_kickoff_failed", "branch", name, "reason", reason)
  checkpoint(run, name, branch, "crew_kickoff_failed", "", stamp, at)
  finish(home, run, name, "failed", "task '" .. key .. "': " .. reason, at)
end
return {"failed"}
