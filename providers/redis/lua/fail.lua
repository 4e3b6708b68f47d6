-- A task failed for good: its branch fails with the reason. What else is running goes on to its commit.
--
-- KEYS home run branch task
-- ARGV name key token worker replayed reason stamp
-- USES now queued emit refuse send goes_on close account release checkpoint lifetime finish failed
--
-- Returns {"failed", the event's sequence, that of the branch's failure or 0} or {"refused"}.
if redis.call("HGET", task, "token") ~= token then return refuse(run, name, key, token, "fail") end
local at = now()
account(run, name, key, "replayed", replayed)
give_up(home, run, name, key, worker)
local seq, all = task_failed(run, name, key, task, reason), 0
checkpoint(run, name, branch, "task_failed", key, stamp, at)
if goes_on(run, name) then all = branch_failed(home, run, name, key, reason, stamp, at) end
return {"failed", seq, all}
