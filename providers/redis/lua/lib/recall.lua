-- Revoke every claim on a branch, and tell the workers to check.
local function recall(home, run, name)
  local branch = branch_key(run, name)
  for _, task in ipairs(redis.call("SMEMBERS", open_key(branch))) do
    local worker = redis.call("HGET", task_key(branch, task), "worker")
    if worker then
      give_up(home, run, name, task, worker)
      redis.call("HSET", task_key(branch, task), "state", "held")
      if redis.call("EXISTS", worker_key(home, worker)) == 1 then
        redis.call("HINCRBY", worker_key(home, worker), "recheck", 1)
      end
    end
  end
end
