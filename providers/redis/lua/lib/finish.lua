-- Whether the stream of a run that ends is settled. Of a long one it would save little, and take its time. A run of a batch began with
-- one that was settled, and grew by what it needs.
local function to_settle(many, batch) return many <= 200 and not (batch and many <= 20) end
-- End a branch: none of its jobs are sent any more. With the last one that ran, the keys of the run get a lifetime.
--
-- known: nil or, of a branch that runs, what the caller has read: "events", how many the run has, which this stores; and "done", its
-- branches, if nothing is in flight on any, with "bundle", what intact_last returns, and "bare", what is_bare does; "branch", what is to
-- be written to the branch; and "run", the run's id, keep, bundle, branch, batch, live.
local function finish(home, run, name, status, err, at, known)
  known = known or {}
  local r = known.run or redis.call("HMGET", run, "id", "keep", "bundle", "branch", "batch", "live", "events")
  local branch = branch_key(run, name)
  local function hold(task)
    redis.call("HSET", task_key(branch, task), "state", "held")
    redis.call("ZREM", queued_key(home), queued_ref(r[1], name, task))
    redis.call("ZREM", due_key(home), r[1] .. "|" .. name .. "|" .. task)
  end
  -- A client that waits for a batch is notified of each of its runs that ends. It is kept for as long as the last of them.
  local function leave_batch(batch, of_run, active, keep)
    redis.call("XADD", batch_ended_key(home, batch), "MAXLEN", "~", 1000, "*", "run", r[1], "status", of_run)
    if redis.call("HINCRBY", batch_key(home, batch), "active", active) > 0 then return end
    for _, k in ipairs({batch_key(home, batch), batch_runs_key(home, batch), batch_ended_key(home, batch)}) do redis.call("PEXPIRE", k, keep) end
  end
  local was = known.events and "running" or redis.call("HGET", branch, "status")
  local ran = was == "running" or was == "waiting"
  redis.call("HSET", branch, "status", status, "error", err, "ended_at", at, unpack(known.branch or {}))
  local live, ended = (r[6] or 0) - (ran and 1 or 0), {}
  -- A run has the status of its current branch.
  if r[4] == name then ended = {"status", status, "error", err, "ended_at", at} end
  if known.events then ended[#ended + 1] = "events"; ended[#ended + 1] = known.events end
  redis.call("HSET", run, "live", live, unpack(ended))
  for _, task in ipairs(known.done and {} or redis.call("SMEMBERS", open_key(branch))) do
    local state = redis.call("HGET", task_key(branch, task), "state")
    if state == "queued" or state == "delayed" then hold(task) end
  end
  if live > 0 then return end
  redis.call("ZREM", active_key(home), r[1])
  local keep = countable(r[2])
  redis.call("ZADD", expiring_key(home), at + keep, r[1])
  if to_settle(known.events or tonumber(r[7] or 0), r[5]) then settle(run) end
  if r[5] then leave_batch(r[5], r[4] == name and status or redis.call("HGET", run, "status"), ran and -1 or 0, keep) end
  each_key(run, function(k) redis.call("PEXPIRE", k, keep) end, known.done, known.bare)
  if r[3] == "" then return end
  -- The bundle outlives its last run as long as that run may still be resumed.
  local bundle = bundle_key(home, r[3])
  local of = known.bundle or redis.call("HMGET", bundle, "needed_until", "active")
  local needed = string.format("%.0f", math.max(of[1] or 0, at + keep))
  local active = math.max((of[2] or 0) - (ran and 1 or 0), 0)
  redis.call("HSET", bundle, "needed_until", needed, "active", active)
  if active == 0 then redis.call("PEXPIREAT", bundle, needed) end
end
