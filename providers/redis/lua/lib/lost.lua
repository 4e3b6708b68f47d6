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
-- How many commits a branch has: its log says so and, as that may be gone, its own record (done).
local function commits_of(branch, done) return math.max(redis.call("LLEN", commit_log_key(branch)), tonumber(done or 0)) end
-- How many of its outputs are gone: of commits, and of what was edited.
local function outputs_gone(branch, commits, edited)
  return math.max(commits + (edited or 0) - redis.call("HLEN", outputs_key(branch)), 0)
end
-- How many of those were committed after a sequence.
local function gone_after(branch, limit)
  local gone = 0
  for _, entry in ipairs(redis.call("LRANGE", commit_log_key(branch), 0, -1)) do
    local known, commit = pcall(cjson.decode, entry)
    if known and commit[1] > limit and redis.call("HEXISTS", outputs_key(branch), commit[2]) == 0 then gone = gone + 1 end
  end
  return gone
end
-- The same of the branches that this one left, up to where it left them: also those that they did again since (lost), as it does not
-- see these; but not those that it knew to be gone (before), which it does itself.
local function gone_before(run, parent, parent_seq, before)
  local b, gone, limit = {parent, parent_seq}, -(before or 0), math.huge
  while b[1] and tonumber(b[2] or 0) > 0 do
    local branch = branch_key(run, b[1])
    limit = math.min(limit, tonumber(b[2]))
    b = redis.call("HMGET", branch, "parent", "parent_seq", "done", "edited", "lost", "lost_at")
    local missing = outputs_gone(branch, commits_of(branch, b[3]), b[4])
    if missing > 0 then missing = math.min(missing - gone_after(branch, limit), limit - (b[2] or 0)) end
    for seq in string.gmatch(b[6] or "", "%d+") do
      if tonumber(seq) > limit then missing = missing - 1 end
    end
    gone = gone + missing + (b[5] or 0)
  end
  return math.max(gone, 0)
end
-- Commits of which the output is gone count as none: their tasks are done again. What came after them, and is there, is not: the
-- branch has holes. What tasks of a plan that grows share is of all commits: it is made again from those that are there.
local function forget_lost(branch, done, edited)
  local log, outputs, lost_at = commit_log_key(branch), outputs_key(branch), redis.call("HGET", branch, "lost_at") or ""
  local gone = outputs_gone(branch, commits_of(branch, done), edited)
  if gone == 0 then return end
  redis.call("HSET", branch, "holes", 1, "done", redis.call("HLEN", outputs) - (edited or 0))
  redis.call("HINCRBY", branch, "lost", gone)
  redis.call("DEL", shared_key(branch))
  for _, entry in ipairs(redis.call("LRANGE", log, 0, -1)) do
    local known, commit = pcall(cjson.decode, entry)
    if known and redis.call("HEXISTS", outputs, commit[2]) == 0 then
      redis.call("LREM", log, 0, entry)
      lost_at = lost_at .. string.format("%d", commit[1]) .. ","
    end
  end
  redis.call("HSET", branch, "lost_at", lost_at)
end
