-- Claim a task: take the exclusive right to it, and read all that is needed to perform it.
--
-- KEYS home run task
-- ARGV name:text key:text attempt:int worker:text process:text nonce:text stamp:text unfit:text environments:text
-- USES now queued emit journals checkpoint intact send is_active migrate_run lost take
--
-- name: the branch. key: the task. nonce: one per delivery, so that a claim whose answer was lost can be asked again:
-- it still holds then, even if the branch ended meanwhile, and its holder must learn of it.
-- unfit: the adapters that this worker cannot serve, with commas around. Their jobs are sent again a second later, for others.
-- environments: the digests of those that this process is, with commas around; "*" for whatever a run asks for.
-- Returns one list: "claimed", the token, failures since the branch was last resumed and since ever, the run's bundle, module, attr,
-- adapter, inputs, plan, crew and standin, the sequences of the branch's start, the task's, and this claim's own event, 1 if that is the
-- first one since the branch's start, the triggers of the run's checkpoints, the start of its agent, if that is at work, 1 if the task is
-- the first that was ever claimed on the branch, what the branch does, the inputs that differ on it, what the run is like if this is the first
-- that happens to it ("" otherwise), how many of what follows are the
-- context's outputs with their tasks, these, and the recorded steps with their names;
-- or {why not}: "gone", the branch's status, "taken", "unfit", "newer" (it is of a newer protocol than ours; likewise), or "unregistered" (beat first: a claim needs a lease);
-- or {"environment", what the run asks for, bundle, module, attr, adapter}: it stays queued, and is sent on by who asked.
local r = of_run(run, "like")
local branch = branch_key(run, name)
local b = of_branch(branch)
local status = b[1]
if not r[1] or not status then return {"gone"} end
local t = of_task(task)
local mine, at = t[6] == nonce, now()
set_likeness(r, mine and "2" or "1")
if not mine then
  if status ~= "running" then return {status} end
  if t[1] ~= "queued" or t[2] ~= attempt then return {"taken"} end
  if not redis.call("ZSCORE", workers_key(home), worker) then return {"unregistered"} end
  redis.call("ZCARD", queued_key(home))
  local newer = tonumber(r[12] or "1") > PROTOCOL
  if newer or string.find(unfit, "," .. (r[5] or "") .. ",", 1, true) then
    redis.call("ZCARD", due_key(home))
    needs_all()
    redis.call("HSET", task, "state", "delayed")
    redis.call("ZREM", queued_key(home), queued_ref(r[1], name, key))
    redis.call("ZADD", due_key(home), at + 1000, r[1] .. "|" .. name .. "|" .. key)
    return {newer and "newer" or "unfit"}
  end
  local wanted = string.match(r[14] or "", "^%x+")
  if wanted and environments ~= "*" and not string.find(environments, "," .. wanted .. ",", 1, true) then
    return {"environment", r[14], r[2], r[3], r[4], r[5]}
  end
end
local found = gathered(run, name, branch, key, t)
if not mine then
  if asked_for(r[13], "task_started") then intact_checkpoints(branch, r[13]) end
  redis.call("XLEN", events_key(run))
  redis.call("HLEN", claims_key(home, worker))
  local older = tonumber(r[12] or "1") < PROTOCOL
  if older or is_seldom(r, t, found) then needs_all() else needs("HSET", "XADD") end
  if older then migrate_run(home, run, at, name, key) end
  redis.call("ZREM", queued_key(home), queued_ref(r[1], name, key))
  take(home, run, r, name, branch, b, key, task, t, worker, process, nonce, found, stamp, at)
end
return given(r, b, key, t, found)
