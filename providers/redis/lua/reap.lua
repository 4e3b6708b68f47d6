-- Take back the claims of a worker that is gone, or of one process of it, and make the tasks runnable elsewhere.
-- A task whose workers died max_attempts times in a row without making progress fails its branch instead.
--
-- KEYS home workers worker claims
-- ARGV id:text process:text about:text lapsed:int reason:text out:said dead:text max_attempts:int max_handovers:int stamp:text some:texts at_once:int
-- USES now queued emit send is_active close account release journals checkpoint lifetime finish failed intact reschedule try
--
-- process: "" for the whole worker. about: "" or what the worker said of itself when it was judged gone; if it has
-- registered again since, nothing is done. lapsed: "1" to do it only if the lease has lapsed. out: JSON, by
-- process, where it is known: a token, and what of that claim had left the process, as entries of the account (see release.lua).
-- dead: "1" if these processes are known to be dead, so that they have begun no step since.
-- max_handovers: 0 if the worker died; else it was asked to end, and each task is handed over as if it had been released.
-- some: references to look at; none for all of them, if they are at_once at most: nothing else waits for long then.
-- Returns {1 if it was done, references of the tasks handed back, those to ask for in parts, where they are too many, the process of
-- each, and 1 if a key that holds another type kept it from handing some back}.
local at = now()
local lease = redis.call("ZSCORE", workers, id)
if lapsed == "1" and lease and tonumber(lease) > at then return {0, {}, {}, {}, 0} end
if about ~= "" and redis.call("HGET", worker, "about") ~= about then return {0, {}, {}, {}, 0} end
local registered = redis.call("HLEN", worker) > 0
local back = {}
local crashed = max_handovers == "0"
local function intact_end(home, run, name, record)
  if not crashed then return intact_reschedule(home, run, name, record, max_handovers) end
  local branch = branch_key(run, name)
  intact_run(home, run, name)
  intact_branch(branch)
  if tonumber(redis.call("HGET", record, "crashes") or "0") + 1 >= tonumber(max_attempts) then
    intact_open(home, branch)
    intact_ends(home, run, 1)
  end
end
local held, refs, processes = {}, some, {}
local function is_of(by)  -- where tasks of a process have a thread each, claims name that, too: they die with it
  return process == "" or by == process or (dead == "1" and string.sub(by, 1, #process + 1) == process .. "-")
end
if #some > 0 then
  local found = redis.call("HMGET", claims, unpack(some))
  for i, ref in ipairs(some) do held[ref] = found[i] or nil end
else
  local all = redis.call("HGETALL", claims)
  for i = 1, #all, 2 do
    local by = string.match(all[i + 1], "^%d+|([^|]*)|") or ""
    if is_of(by) then
      refs[#refs + 1], processes[#refs + 1], held[all[i]] = all[i], by, all[i + 1]
    end
  end
  if #refs > tonumber(at_once) then return {1, {}, refs, processes, 0} end
end
for _, ref in ipairs(refs) do
  local token, by = string.match(held[ref] or "", "^(%d+)|([^|]*)|")
  if token and is_of(by) then
    local of, left = string.match(out[by] or "", "^(%d+) (.*)$")
    local run_id, name, key = string.match(ref, "^([^|]*)|([^|]*)|(.*)$")
    local run = run_key(home, run_id)
    local branch = branch_key(run, name)
    local record = task_key(branch, key)
    if asked("HGET", record, "token") ~= token then
      redis.call("HDEL", claims, ref)
    elseif not try(intact_end, home, run, name, record) then  -- it stays, and does not hold up the tasks of others
      if asked("HEXISTS", run, "id") == 0 then redis.call("HDEL", claims, ref) end  -- unless its run is gone
    else
      redis.call("HDEL", claims, ref)
      local attempt = give_up(home, run, name, key, id, true, of == token and noted(left), of == token and dead == "1")
      redis.call("HINCRBY", run, "recoveries", 1)
      emit(run, crashed and "task_recovered" or "task_released", "branch", name, "task", key, "attempt", attempt, "worker", id, "reason", reason,
           "parent", redis.call("HGET", record, "started") or 0)
      local crashes = crashed and redis.call("HINCRBY", record, "crashes", 1) or 0
      if not crashed then
        reschedule(home, run, name, key, attempt, id, reason, max_handovers, stamp, at)
      elseif crashes >= tonumber(max_attempts) then
        local why = "its worker died " .. crashes .. " times in a row without making progress (last: " .. reason .. ")"
        task_failed(run, name, key, record, why, id, at)
        checkpoint(run, name, branch, "task_failed", key, stamp, at)
        if is_active(run, name) then branch_failed(home, run, name, key, why, stamp, at) end
      else
        -- Its last attempt is made in a process of its own: it may be another task that kills the one they share.
        if crashes + 1 >= tonumber(max_attempts) then redis.call("HDEL", record, "pool") end
        requeue(home, run, name, key, attempt, at)
      end
      back[#back + 1] = ref .. "|" .. attempt - 1
    end
  end
end
if process == "" and redis.call("HLEN", claims) == 0 then
  redis.call("ZREM", workers, id)
  redis.call("DEL", worker)
elseif process == "" and registered then
  redis.call("HINCRBY", worker, "recheck", 1)  -- if it lives, it is still registered, and is to learn of it
end
return {1, back, {}, {}, overwritten}
