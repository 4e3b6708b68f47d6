-- An attempt failed and another is allowed: it follows after a delay, and replays the recorded steps.
--
-- KEYS home run task
-- ARGV name:text key:text token:int worker:text replayed:entries? delay_ms:int reason:text trace:text
-- USES now queued emit refuse send is_active close account release intact
--
-- trace: where it was raised; of several attempts the last one's is kept.
-- Returns {"delayed", next attempt} or {"refused"}.
if redis.call("HGET", task, "token") ~= token then return refuse(run, name, key, token, "retry") end
intact_run(home, run, name)
redis.call("HLEN", claims_key(home, worker))
redis.call("ZCARD", due_key(home))
local at = now()
account(run, name, key, "replayed", replayed)
local attempt = give_up(home, run, name, key, worker, nil, nil, true)
redis.call("HINCRBY", task, "failures", 1)
redis.call("HINCRBY", task, "failed", 1)
redis.call("HSET", task, "trace", trace)
emit(run, "task_retried", "branch", name, "task", key, "attempt", attempt, "delay_ms", delay_ms, "reason", reason,
     "parent", redis.call("HGET", task, "started") or 0)
if is_active(run, name) then
  redis.call("HSET", task, "state", "delayed")
  redis.call("ZADD", due_key(home), at + delay_ms, redis.call("HGET", run, "id") .. "|" .. name .. "|" .. key)
else
  requeue(home, run, name, key, attempt, at)
end
return {"delayed", attempt}
