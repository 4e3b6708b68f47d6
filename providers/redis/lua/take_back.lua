-- Take back one claim of a worker that lives, and of which no process performs it. It cost nobody's life: no crash counts,
-- only that it was handed over; max_handovers times without getting further, and its branch fails.
--
-- KEYS home run task claims
-- ARGV name:text key:text token:int ref:text worker:text reason:text max_handovers:int stamp:text
-- USES now queued emit send goes_on close account release checkpoint lifetime finish failed intact hand_over
--
-- Returns 1 if the task was taken back, 0 where the claim holds no more.
local listed = string.match(redis.call("HGET", claims, ref) or "", "^(%d+)|") == token
local holds = redis.call("HGET", task, "token") == token
if holds then intact_hand_over(home, run, name, task, max_handovers) end
if listed then redis.call("HDEL", claims, ref) end
if not holds then return 0 end
local at = now()
local attempt = give_up(home, run, name, key, worker, true)
redis.call("HINCRBY", run, "recoveries", 1)
emit(run, "task_recovered", "branch", name, "task", key, "attempt", attempt, "worker", worker, "reason", reason,
     "parent", redis.call("HGET", task, "started") or 0)
hand_over(home, run, name, key, attempt, worker, reason, max_handovers, stamp, at)
return 1
