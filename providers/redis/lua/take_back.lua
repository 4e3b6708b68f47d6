-- Take back a claim of a live worker of which no process performs it. No process died of it: no crash is counted,
-- only a handover; after max_handovers of them without progress its branch fails.
--
-- KEYS home run task claims
-- ARGV name:text key:text token:int ref:text worker:text reason:text max_handovers:int stamp:text
-- USES now queued emit send is_active close account release journals checkpoint lifetime finish failed intact reschedule
--
-- Returns 1 if the task was taken back, 0 where the claim does not hold any more, or its run is gone.
local listed = string.match(redis.call("HGET", claims, ref) or "", "^(%d+)|") == token
local holds = redis.call("HGET", task, "token") == token and redis.call("HEXISTS", run, "id") == 1
if holds then intact_reschedule(home, run, name, task, max_handovers) end
if listed then redis.call("HDEL", claims, ref) end
if not holds then return 0 end
local at = now()
local attempt = give_up(home, run, name, key, worker, true)
redis.call("HINCRBY", run, "recoveries", 1)
emit(run, "task_recovered", "branch", name, "task", key, "attempt", attempt, "worker", worker, "reason", reason,
     "parent", redis.call("HGET", task, "started") or 0)
reschedule(home, run, name, key, attempt, worker, reason, max_handovers, stamp, at)
return 1
