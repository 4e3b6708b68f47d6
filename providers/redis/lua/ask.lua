-- A task asks a person something: its claim is released, and it resumes when there is an answer. Its journal stays.
--
-- KEYS home run branch task journal
-- ARGV name:text key:text token:int worker:text replayed:entries? step:text question:text stamp:text
-- USES now queued emit refuse send is_active close account release journals checkpoint wait intact
--
-- step: where in the journal the answer belongs; what stands there is no answer. question: JSON, for whoever answers.
-- Returns {"asked", the branch's status} or {"refused"}.
if redis.call("HGET", task, "token") ~= token then return refuse(run, name, key, token, "ask") end
intact_run(home, run, name)
intact_branch(branch)
redis.call("HLEN", claims_key(home, worker))
redis.call("HDEL", journal, step)
account(run, name, key, "replayed", replayed)
give_up(home, run, name, key, worker, nil, nil, true)
redis.call("HSET", task, "state", "asked", "step", step, "question", question)
redis.call("HINCRBY", branch, "asked", 1)
emit(run, "task_asked", "branch", name, "task", key, "parent", redis.call("HGET", task, "started") or 0)
if is_active(run, name) then
  wait_if_asked(run, name, branch, tonumber(redis.call("HGET", branch, "left") or "0"), stamp, now())
end
return {"asked", redis.call("HGET", branch, "status")}
