-- Look at some of the active runs for what is gone of them, as where a key was deleted, or the server evicted one: it is asked
-- for by no worker again, and the run would be active for ever.
--
-- KEYS home runs active queued due workers
-- ARGV first:int many:int stamp:text
-- USES now queued emit send goes_on close account release journals checkpoint lifetime finish failed intact
--
-- first: how many of the active runs to pass over. many: how many to look at; more where all would take over ten minutes.
-- A key of a run, of a worker, or an index of this store, that holds what is of another type is removed, and counts as one that is gone.
-- A run that is gone is forgotten. A branch fails that is gone itself, or has a task whose record is, or none in flight at all.
-- What is only listed no more is listed again, and a task of a worker that is not registered is handed back.
-- Returns {how many were passed over at the end, or 0 where these were the last; what was found, each a run and a text}.
local GONE = "gone from the store: deleted there, or evicted"
local SOME = 50  -- of the tasks in flight on a branch: others are looked at the next time
local at, found = now(), {}
local function say(id, text) found[#found + 1] = {id, text} end
local function clear(id, k, kind)
  local have = redis.call("TYPE", k).ok
  if have == kind or have == "none" then return end
  redis.call("DEL", k)
  say(id, "its key " .. k .. " held a " .. have .. " instead of a " .. kind .. ": removed")
end
local function clear_task(id, branch, task)
  clear(id, task_key(branch, task), "hash")
  clear(id, journal_key(branch, task), "hash")
  clear(id, steps_key(branch, task), "zset")
end
local function clear_branch(id, branch)
  for _, k in ipairs({branch, outputs_key(branch), waits_key(branch), shared_key(branch), lineage_key(branch)}) do
    clear(id, k, "hash")
  end
  clear(id, commit_log_key(branch), "list")
  clear(id, checkpoints_key(branch), "zset")
  clear(id, journals_key(branch), "zset")
  clear(id, open_key(branch), "set")
  for _, task in ipairs(redis.call("SRANDMEMBER", open_key(branch), SOME)) do clear_task(id, branch, task) end
end
local function clear_run(id)
  local run = run_key(home, id)
  clear(id, run, "hash")
  clear(id, ledger_key(run), "hash")
  clear(id, plan_key(run), "string")
  clear(id, events_key(run), "stream")
  clear(id, branches_key(run), "set")
  local batch = redis.call("HGET", run, "batch")
  if batch then
    clear(id, batch_key(home, batch), "hash")
    clear(id, batch_runs_key(home, batch), "zset")
    clear(id, batch_ended_key(home, batch), "stream")
  end
  for _, name in ipairs(redis.call("SMEMBERS", branches_key(run))) do clear_branch(id, branch_key(run, name)) end
end
local function forget(id, run)
  redis.call("ZREM", active, id)
  redis.call("ZREM", runs, id)
  each_key(run, function(k) redis.call("PEXPIRE", k, 3600000) end)
  say(id, "it is " .. GONE .. "; it is forgotten")
end
local function lose_branch(id, run, name, was_live)
  intact_ends(home, run, math.huge)
  local why = "branch '" .. name .. "' is " .. GONE
  -- How far it was, its commits and its checkpoints say: so it can be shown, and resumed.
  local branch = branch_key(run, name)
  local commit = string.match(redis.call("LINDEX", commit_log_key(branch), -1) or "", "^%[(%d+)")
  local newest = redis.call("ZREVRANGE", checkpoints_key(branch), 0, 0, "WITHSCORES")[2]
  redis.call("HSET", branch, "seq", math.max(tonumber(commit or "0"), tonumber(newest or "0")))
  if was_live then redis.call("HSET", branch, "status", "running") end
  emit(run, "crew_kickoff_failed", "branch", name, "reason", why)
  finish(home, run, name, "failed", why, at)
  say(id, why)
end
local function lose_task(id, run, name, task)
  local record, why = task_key(branch_key(run, name), task), "its record is " .. GONE
  intact_ends(home, run, math.huge)
  task_failed(run, name, task, record, why, "", at)
  checkpoint(run, name, branch_key(run, name), "task_failed", task, stamp, at)
  branch_failed(home, run, name, task, why, stamp, at)
  say(id, "task '" .. task .. "' of branch '" .. name .. "': " .. why)
end
local function hand_back(id, run, name, task, worker)
  intact_run(home, run, name)
  redis.call("HLEN", claims_key(home, worker))
  local attempt, reason = give_up(home, run, name, task, worker, true), "its worker is not known to the store"
  redis.call("HINCRBY", run, "recoveries", 1)
  emit(run, "task_recovered", "branch", name, "task", task, "attempt", attempt, "worker", worker, "reason", reason,
       "parent", redis.call("HGET", task_key(branch_key(run, name), task), "started") or 0)
  requeue(home, run, name, task, attempt, at)
  say(id, "task '" .. task .. "' of branch '" .. name .. "': " .. reason)
end
-- Returns whether the branch still runs.
local function look_at_task(id, run, name, task)
  local t = redis.call("HMGET", task_key(branch_key(run, name), task), "state", "worker", "token", "process")
  local ref = id .. "|" .. name .. "|" .. task
  if not t[1] then
    lose_task(id, run, name, task)
    return false
  elseif t[1] == "queued" and goes_on(run, name) then
    redis.call("ZADD", queued, "NX", at, queued_ref(id, name, task))
  elseif t[1] == "delayed" and goes_on(run, name) then
    redis.call("ZADD", due, "NX", at, ref)
  elseif t[1] == "running" then
    local worker = t[2] or ""
    if not redis.call("ZSCORE", workers, worker) then
      hand_back(id, run, name, task, worker)
    elseif redis.call("HEXISTS", claims_key(home, worker), ref) == 0 then
      redis.call("HSET", claims_key(home, worker), ref, t[3] .. "|" .. t[4] .. "|0")
    end
  end
  return true
end
local function look_at_branch(id, run, name)
  local branch = branch_key(run, name)
  local tasks = redis.call("SRANDMEMBER", open_key(branch), SOME)
  for _, task in ipairs(tasks) do
    if not look_at_task(id, run, name, task) then return end
  end
  if #tasks > 0 or not goes_on(run, name) then return end
  local why = "nothing of branch '" .. name .. "' is in flight: the list of its tasks is " .. GONE
  intact_ends(home, run, math.huge)
  emit(run, "crew_kickoff_failed", "branch", name, "started", redis.call("HGET", branch, "scope") or 0, "reason", why)
  checkpoint(run, name, branch, "crew_kickoff_failed", "", stamp, at)
  finish(home, run, name, "failed", why, at)
  say(id, why)
end
local function look_at(id)
  local run = run_key(home, id)
  local r = redis.call("HMGET", run, "id", "branch", "live")
  if not r[1] then return forget(id, run) end
  redis.call("SADD", branches_key(run), r[2])
  local live, lost = {}, {}
  for _, name in ipairs(redis.call("SMEMBERS", branches_key(run))) do
    local status = redis.call("HGET", branch_key(run, name), "status")
    if not status then
      lost[#lost + 1] = name
    elseif status == "running" or status == "waiting" then
      live[#live + 1] = name
    end
  end
  for i, name in ipairs(lost) do lose_branch(id, run, name, #live + i <= tonumber(r[3] or "0")) end
  for _, name in ipairs(live) do look_at_branch(id, run, name) end
end
local function clear_store()
  for _, index in ipairs({active, runs, queued, due, workers, outbox_key(home), expiring_key(home)}) do clear("-", index, "zset") end
  for _, worker in ipairs(redis.call("ZRANDMEMBER", workers, SOME)) do
    clear("-", worker_key(home, worker), "hash")
    clear("-", claims_key(home, worker), "hash")
  end
end
pcall(clear_store)
local all = redis.call("ZCARD", active)
local most = math.max(tonumber(many), math.ceil(all / 600))
local ids = redis.call("ZRANGE", active, first, first + most - 1)
-- What cannot be read, or written, of one does not keep the others from being looked at.
for _, id in ipairs(ids) do
  pcall(clear_run, id)
  pcall(look_at, id)
end
local passed = first + #ids - (all - redis.call("ZCARD", active))
return {#ids < most and 0 or passed, found}
