-- The store lost something that it had acknowledged. Each worker learns that from its next heartbeat (see beat.lua), and looks for
-- what it was told.
local function tell_workers(home)
  local all = redis.pcall("ZRANGE", workers_key(home), 0, -1)
  for _, id in ipairs(all.err and {} or all) do
    local worker = worker_key(home, id)
    if redis.pcall("HEXISTS", worker, "beats") == 1 then redis.call("HSET", worker, "beats", 0) end
  end
end
-- A branch fails because the store has not any more what it needs. A resume does again what is gone.
local GONE = "gone from the store: deleted there, or evicted"
local function branch_lost(home, run, name, why, stamp, at)
  local branch = branch_key(run, name)
  emit(run, "crew_kickoff_failed", "branch", name, "started", redis.call("HGET", branch, "scope") or 0, "reason", why)
  checkpoint(run, name, branch, "crew_kickoff_failed", "", stamp, at)
  finish(home, run, name, "failed", why, at)
end
-- How many outputs of the branches that this one left are gone, where it continues from what they did.
local function gone_before(run, branch)
  local gone = 0
  while true do
    local b = redis.call("HMGET", branch, "parent", "parent_seq")
    if not b[1] or tonumber(b[2] or 0) == 0 then return gone end
    branch = branch_key(run, b[1])
    gone = gone + math.max(redis.call("LLEN", commit_log_key(branch)) - redis.call("HLEN", outputs_key(branch)), 0)
  end
end
-- Commits of which the output is gone count as none: their tasks are done again. What came after them, and is there, is not: the
-- branch has holes. What tasks of a plan that grows share is of all commits: it is made again from those that are there.
local function forget_lost(branch)
  local log, outputs = commit_log_key(branch), outputs_key(branch)
  if redis.call("LLEN", log) <= redis.call("HLEN", outputs) then return end
  redis.call("HSET", branch, "holes", 1)
  redis.call("DEL", shared_key(branch))
  for _, entry in ipairs(redis.call("LRANGE", log, 0, -1)) do
    local known, commit = pcall(cjson.decode, entry)
    if known and redis.call("HEXISTS", outputs, commit[2]) == 0 then redis.call("LREM", log, 0, entry) end
  end
end
