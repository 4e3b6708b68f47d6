-- A task failed for good, on this worker; if it runs once more, that is another start.
local function task_failed(run, name, task, record, reason, worker, at)
  close_open(run, name, record)
  local t = redis.call("HMGET", record, "scope", "started")
  redis.call("HSET", record, "state", "failed", "error", reason, "by", worker, "ended", string.format("%.0f", at))
  redis.call("HDEL", record, "scope", "started", "claimed")
  return emit(run, "task_failed", "branch", name, "task", task, "parent", t[1] or 0, "started", t[2] or 0, "reason", reason)
end
-- Its branch failed with it, if it was running.
local function branch_failed(home, run, name, task, reason, stamp, at)
  local branch = branch_key(run, name)
  local seq = emit(run, "crew_kickoff_failed", "branch", name, "started", redis.call("HGET", branch, "scope") or 0, "reason", reason)
  checkpoint(run, name, branch, "crew_kickoff_failed", "", stamp, at)
  finish(home, run, name, "failed", "task '" .. task .. "': " .. reason, at)
  return seq
end
