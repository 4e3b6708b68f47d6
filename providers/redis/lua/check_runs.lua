-- Look at some of the active runs for what is gone of them, as where a key was deleted, or the server evicted one: it is asked
-- for by no worker again, and the run would be active for ever.
--
-- KEYS home runs active queued due workers
-- ARGV first:int many:int stamp:text
-- USES now queued emit send is_active close account release journals checkpoint lifetime finish failed intact lost try
--
-- first: how many of the active runs to pass over. many: how many to look at; more where all would take over ten minutes.
-- A run that is gone is forgotten. A branch fails that is gone itself, or has a task whose record is, or none in flight at all.
-- What is only listed no more is listed again, and a task of a worker that is not registered is handed back.
-- Returns {how many were passed over at the end, or 0 where these were the last; what was found, each a run and a text; 1 if a key
-- that holds another type kept it from looking at some}.
local SOME = 50  -- of the tasks in flight on a branch: others are looked at the next time
local at, found = now(), {}
local function say(id, text) found[#found + 1] = {id, text} end
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
  tell_workers(home)  -- the record said what was under way, and how many steps there were
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
  elseif t[1] == "queued" and is_active(run, name) then
    redis.call("ZADD", queued, "NX", at, queued_ref(id, name, task))
  elseif t[1] == "delayed" and is_active(run, name) then
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
  if #tasks > 0 or not is_active(run, name) then return end
  local why = "nothing of branch '" .. name .. "' is in flight: what says which of its tasks come next is " .. GONE
  intact_ends(home, run, math.huge)
  branch_lost(home, run, name, why, stamp, at)
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
local all = redis.call("ZCARD", active)
local most = math.max(tonumber(many), math.ceil(all / 600))
local ids = redis.call("ZRANGE", active, first, first + most - 1)
-- What cannot be read, or written, of one does not keep the others from being looked at.
for _, id in ipairs(ids) do try(look_at, id) end
local passed = first + #ids - (all - redis.call("ZCARD", active))
return {#ids < most and 0 or passed, found, overwritten}
