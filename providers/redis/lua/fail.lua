-- A task failed for good: its branch fails with the reason. Its other tasks in flight continue to their commit.
--
-- KEYS home run branch task
-- ARGV name:text key:text token:int worker:text replayed:entries? reason:text trace:text stamp:text
-- USES now queued emit refuse send is_active close account release journals checkpoint lifetime finish failed intact
--
-- trace: where it was raised.
-- Returns {"failed", the event's sequence, that of the branch's failure or 0} or {"refused"}.
if redis.call("HGET", task, "token") ~= token then return refuse(run, name, key, token, "fail") end
intact_run(home, run, name)
intact_branch(branch)
intact_open(home, branch)
intact_ends(home, run, 1)
local at = now()
account(run, name, key, "replayed", replayed)
give_up(home, run, name, key, worker, nil, nil, true)
redis.call("HSET", task, "trace", trace)
local seq, all = task_failed(run, name, key, task, reason, worker, at), 0
checkpoint(run, name, branch, "task_failed", key, stamp, at)
if is_active(run, name) then all = branch_failed(home, run, name, key, reason, stamp, at) end
return {"failed", seq, all}
