-- Stop a run: claims are taken back, so nothing more of it is written, and their workers are told to look.
--
-- KEYS home run
-- ARGV reason
-- USES now emit send release lifetime finish
--
-- Returns the run's status before: only "running" and "waiting" are cancelled by it.
local was = redis.call("HGET", run, "status")
if was ~= "running" and was ~= "waiting" then return was or "gone" end
local at = now()
finish(home, run, "cancelled", reason, at)
for _, name in ipairs(redis.call("SMEMBERS", branches_key(run))) do
  local branch = branch_key(run, name)
  for _, key in ipairs(redis.call("SMEMBERS", open_key(branch))) do
    local worker = redis.call("HGET", task_key(branch, key), "worker")
    if worker then
      give_up(home, run, name, key, worker)
      redis.call("HSET", task_key(branch, key), "state", "held")
      if redis.call("EXISTS", worker_key(home, worker)) == 1 then
        redis.call("HINCRBY", worker_key(home, worker), "recheck", 1)
      end
    end
  end
end
emit(run, "run_cancelled", "reason", reason)
return was
