-- Release a task: its worker drains, and another one continues from the recorded steps. One that was handed over
-- max_handovers times without making progress fails its branch instead.
--
-- KEYS home run task
-- ARGV name:text key:text token:int worker:text replayed:entries? max_handovers:int stamp:text
-- USES now queued emit refuse send is_active close account release journals checkpoint lifetime finish failed intact reschedule
--
-- Returns {"released", next attempt} or {"refused"}.
if redis.call("HGET", task, "token") ~= token then return refuse(run, name, key, token, "release") end
intact_reschedule(home, run, name, task, max_handovers)
redis.call("HLEN", claims_key(home, worker))
local at = now()
account(run, name, key, "replayed", replayed)
local attempt = give_up(home, run, name, key, worker, true, nil, true)
redis.call("HINCRBY", run, "recoveries", 1)
emit(run, "task_released", "branch", name, "task", key, "attempt", attempt, "worker", worker, "reason", "drain",
     "parent", redis.call("HGET", task, "started") or 0)
reschedule(home, run, name, key, attempt, worker, "its worker was asked to end", max_handovers, stamp, at)
return {"released", attempt}
