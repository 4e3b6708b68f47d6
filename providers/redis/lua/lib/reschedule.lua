-- Hand a task over to the next claim. One that was handed over `most` times in a row without recording more than
-- before fails instead, so that its run ends: no worker can perform it.
local function intact_reschedule(home, run, name, record, most)
  intact_run(home, run, name)
  if tonumber(redis.call("HGET", record, "handed") or "0") + 1 < tonumber(most) then return end
  intact_branch(branch_key(run, name))
  intact_open(home, branch_key(run, name))
  intact_ends(home, run, 1)
end
local function reschedule(home, run, name, task, attempt, worker, reason, most, stamp, at)
  local branch = branch_key(run, name)
  local record = task_key(branch, task)
  local handed = redis.call("HINCRBY", record, "handed", 1)
  if handed < tonumber(most) then return requeue(home, run, name, task, attempt, at) end
  local why = "it was handed back " .. handed .. " times in a row without making progress (last: " .. reason .. ")"
  task_failed(run, name, task, record, why, worker, at)
  checkpoint(run, name, branch, "task_failed", task, stamp, at)
  if is_active(run, name) then branch_failed(home, run, name, task, why, stamp, at) end
end
