-- Commit a task: its output, the checkpoint and pruning, the tasks that it unlocks and their jobs, all or nothing.
--
-- KEYS home run branch task journal outputs
-- ARGV name:text key:text token:int worker:text output:text log_entry:text replayed:entries? next:tasks expansion:expansion? stamp:text process:text queue:text like:text nonce:text recorded:int events:rest
-- USES now queued emit refuse send unlock close account journals checkpoint lifetime finish wait expand intact lost output take waiting
--
-- output: the record as JSON without its opening brace. log_entry: the task and what it used, as the rest of a JSON list that
-- begins with its sequence. next: JSON list of {task, needs, context, timeout, pool} that wait
-- for this one, where needs is how many tasks each waits for in all. expansion: "" or, for a plan that grows by next, JSON of
-- the shared texts to put, those gone, lines to note, and the version that all this was made from.
-- process: "", or the process of the worker that continues with the first task that becomes ready: instead of being sent, it
-- is claimed as by claim.lua. queue: "", or where that process takes its next job if none became ready.
-- like: what the run is like, as claim.lua gave it. nonce: one per commit,
-- so that a claim whose answer was lost can be asked again. recorded: how many steps the store acknowledged to this claim.
-- events: nothing, or the nonce of events that were sent just before, of which it is not known whether they came.
-- Returns {"untold"} where they did not,
-- {"rewound"} where it has fewer steps, and they are not counted yet (find_lost_writes.lua needs the journal for that),
-- {"committed", sequence, the branch's status (failed, where it was the last one and outputs of others are gone), the event's sequence, that of the branch's completion or 0, and where
-- one was claimed what claim.lua returns, with the task, attempt, run and branch before the outputs, or what waiting.lua does}, also when this very token
-- committed before (the events' are 0 then), {"changed"} (the shared texts did: look again), or {"refused"}.
if #ARGV > events + 1 or ARGV[events + 1] == "" then wrong("events", "a nonce") end
local t = redis.call("HMGET", task, "token", "scope", "started", "prompt_tokens", "completion_tokens", "begun", "attempt",
                     "began", "claims", "reserved", "open", "numbered", "told")
if t[1] ~= token then
  local done = redis.call("HGET", outputs, key)
  local seq, by = string.match(done or "", '^{"seq":(%d+),"token":(%d+)')
  if by ~= token then return refuse(run, name, key, token, "commit") end
  return {"committed", tonumber(seq), redis.call("HGET", branch, "status"), 0, 0, nonce ~= "" and claimed_with(home, worker, nonce) or nil}
end
if ARGV[events + 1] and string.match(t[13] or "", "^%S*") ~= ARGV[events + 1] then return {"untold"} end
if expansion and (redis.call("HGET", shared_key(branch), "version") or "") ~= expansion.version then return {"changed"} end
if recorded ~= "0" then
  local missing = steps_missing(journal, recorded, t[9], token)
  local counted = missing > 0 and redis.call("HGET", run, "rewound:" .. name .. "|" .. key .. "|" .. token)
  for _ in pairs(counted and cjson.decode(counted).steps or {}) do missing = missing - 1 end
  if missing > 0 then return {"rewound"} end
end
local last = #next == 0 and not expansion  -- nothing of this run continues
local alone_next = process ~= "" and #next == 1 and next[1].needs == 1  -- this process continues with it, and nothing is sent, mostly
local r, b, id, bundle, adapter, on, environment, latest, most, batch, status, scope, count, remain, head, from, asked
local done, edited, parent, parent_seq, known_before, holes, aside
if last then
  r = redis.call("HMGET", run, "id", "bundle", "adapter", "checkpoint_on", "environment", "events", "max_checkpoints", "batch", "keep",
                 "branch", "live")
  id, bundle, adapter, on, environment, latest, most, batch = unpack(r)
  -- With two events its only task has begun, and no more: its branch has none of the other fields.
  b = latest == "2" and redis.call("HMGET", branch, "status", "scope", "seq", "left", "head") or
      redis.call("HMGET", branch, "status", "scope", "seq", "left", "head", "from", "asked", "done", "edited", "parent", "parent_seq", "before")
  status, scope, count, remain, head, from, asked, done, edited, parent, parent_seq, known_before = unpack(b)
else
  r = alone_next and of_run(run, "max_checkpoints", "batch") or of_run(run, "max_checkpoints", "batch", "queue", "direct", "envelope")
  b = of_branch(branch, "seq", "left", "head", "from", "asked", "done", "edited", "parent", "parent_seq", "before", "holes", "aside")
  id, bundle, adapter, on, environment, latest, most, batch = r[1], r[2], r[5], r[13], r[14], r[15], r[16], r[17]
  status, scope, count, remain, head, from, asked = b[1], b[6], b[7], b[8], b[9], b[10], b[11]
  done, edited, parent, parent_seq, known_before, holes = b[12], b[13], b[14], b[15], b[16], b[17]
  aside = b[18]
end
if holes then  -- what was done after something that is done again is not
  local all = next
  next = {}
  for _, job in ipairs(all) do
    if redis.call("HEXISTS", outputs, job.task) == 0 then next[#next + 1] = job end
  end
end
if not remain then return refuse(run, name, key, token, "commit") end  -- the branch is gone
local unlocked = expansion and #next or 0
local left = tonumber(remain) + unlocked - 1
-- Who holds a claim is registered: only its last claim goes with it (reap.lua). Before what waits is sent again for a newer
-- protocol, no process continues.
local going, waits
if process ~= "" then
  for _, job in ipairs(not last and status == "running" and tonumber(r[12] or "1") == PROTOCOL and next or {}) do
    if job.needs == 1 or (redis.call("HGET", waits_key(branch), job.task) or 0) + 1 == job.needs then
      going = {}
      going.job, going.record = job, task_key(branch, job.task)
      going.t = redis.call("HLEN", going.record) > 0 and of_task(going.record) or {}
      going.t[3], going.t[4] = job.context, job.timeout
      going.found = gathered(run, name, branch, job.task, going.t, key)
      break
    end
  end
  if not going and queue ~= "" then waits = waiting(home, queue, run, adapter, environment, like, key) end
end
redis.call("XLEN", events_key(run))
local alone = false  -- whether it is the last, and nothing else of the branch is in flight
local begun_only = latest == "2"  -- nothing has happened to the run but its beginning and this claim: it has one branch
if left > 0 then
  redis.call("SCARD", open_key(branch))
elseif begun_only then
  alone = true
else
  local open = redis.call("SRANDMEMBER", open_key(branch), 2)
  alone = #open == 1 and open[1] == key
end
redis.call("HLEN", claims_key(home, worker))
local counts = replayed or (t[6] and t[6] ~= "")
local bare = last and not counts and left <= 0 and bundle ~= ""
local is_first = bare and count == "0" and is_bare(run, branch, commit_log_key(branch), checkpoints_key(branch), lineage_key(branch))
local gone, before = 0, 0  -- outputs of the branch, and of those that it left, where all of it is done
if not is_first then
  done = commits_of(branch, done)
  if left <= 0 and count ~= "0" then gone = outputs_gone(branch, done, edited) end
  if left <= 0 and parent then before = gone_before(run, parent, parent_seq, known_before) end
  intact_checkpoints(branch, on)
end
local kept = t[12] and redis.call("ZCARD", journals_key(branch)) and redis.call("ZCARD", checkpoints_key(branch)) > 0
if counts then redis.call("HLEN", ledger_key(run)) end
if status ~= "running" then
  intact_ends(home, run, math.huge)
elseif #next > (going and going.job.needs == 1 and 1 or 0) then
  if alone_next then r[18], r[19], r[20] = unpack(redis.call("HMGET", run, "queue", "direct", "envelope")) end
  intact_queue(home, r[18], r[19], r[20], next)
  redis.call("HLEN", waits_key(branch))
  intact_tasks(branch, next)
end
local known = {}
local branches = not alone and {} or begun_only and {name} or redis.call("SRANDMEMBER", branches_key(run), 2)
if #branches == 1 then
  known.done, known.bundle, known.bare = branches, intact_last(home, bundle, batch), is_first or bare and is_bare(run, branch)
elseif left <= 0 then
  intact_open(home, branch)
  intact_ends(home, run, 1)
end
local taken = waits or going
if counts or holes or expansion or t[11] or t[12] or status ~= "running" or tonumber(asked or 0) > 0 or tonumber(most or 0) > 0
   or gone + before > 0 or tonumber(aside or 0) > 0
   or (latest or 0) % 100 > 96 or left <= 0 and not (known.done and bare)
   or taken and is_seldom(taken.r or r, taken.t, taken.found) then
  needs_all()
else  -- as most do: fewer questions
  needs("RPUSH", "DEL", "HDEL", "XADD", "HSET")
  if not alone then needs("SREM") end
  local sent = #next > (going and 1 or 0)
  if #next > 0 then needs("SADD") end
  if sent or #next > 0 and next[1].needs > 1 then needs("HINCRBY") end
  if sent or left <= 0 or asked_for(on, "task_completed") then needs("ZADD") end
  if left <= 0 then
    needs("ZREM", "PEXPIRE")
    if batch then needs("HINCRBY") end
    if to_settle((latest or 0) + 2, batch) then needs("COPY", "RENAME") end
    if tonumber(known.bundle[2] or 0) < 2 then needs("PEXPIREAT") end
  end
  if waits then needs("ZREM") end
end
local at = now()
local seq, told = (count or 0) + 1, nil
local function ended(status, all)
  local claim = waits and take_waiting(home, queue, waits, worker, process, nonce, stamp, at) or nil
  return {"committed", seq, status, told, all, claim}
end
local number = string.format("%d", seq)  -- a number in .. takes four times as long
local whole = recorded_output(number, token, t[9], worker, t[7], t[8], t[4], t[5], at, output)
if redis.call("HSETNX", outputs, key, whole) == 0 then return refuse(run, name, key, token, "commit") end  -- the first write
redis.call("RPUSH", commit_log_key(branch), "[" .. number .. log_entry)
if t[11] then
  close_open(run, name, task)
  latest = redis.call("HGET", run, "events")
end
redis.call("DEL", task, kept and task or journal, alone and open_key(branch) or task)
if kept then keep_journal(branch, key, seq, redis.call("HGET", run, "keep")) end
if t[12] and not kept then redis.call("DEL", steps_key(branch, key)) end
if not alone then redis.call("SREM", open_key(branch), key) end
redis.call("HDEL", claims_key(home, worker), id .. "|" .. name .. "|" .. key)
if counts then
  account(run, name, key, "replayed", replayed)
  account(run, name, key, "in_doubt", noted(t[6], t[10]))  -- what its threads are still at, and what broke off
end
told = (latest or 0) + 1
local ends = left == 0 and gone + before == 0 and status == "running" and not expansion
if not (going or ends) or expansion then redis.call("HSET", run, "events", told) end  -- else with what is claimed, or what ends
local completed = in_short("task_completed")  -- as append would, which costs three times as much
put(run, told, completed, name, key, t[2] or 0, t[3] or 0, 0, '["' .. number .. '"]')
if expansion then expand(run, name, branch, key, seq, expansion) end
latest = told + (expansion and #expansion.notes or 0)
if unlocked > 0 then redis.call("HINCRBY", run, "tasks", unlocked) end
local fields = {"seq", seq, "left", left}
if not is_first then fields[5], fields[6] = "done", done + 1 end
if asked_for(on, "task_completed") then
  fields[#fields + 1], fields[#fields + 2] = "head", put_checkpoint(id, name, branch, on, most, seq, head or from or "", "task_completed", key, stamp, at)
end
if ends and not asked_for(on, "crew_kickoff_completed") then  -- whose checkpoint reads the branch
  known.branch = fields
else
  redis.call("HSET", branch, unpack(fields))
end
if status ~= "running" then
  -- The branch is over: the output, which was paid for, is kept. A resume finds the tasks that it unlocks.
  local ttl = redis.call("PTTL", run)
  if ttl > 0 then each_key(run, function(k) redis.call("PEXPIRE", k, ttl) end) end
  return ended(status, 0)
end
for _, job in ipairs(next) do
  local ready = job.needs == 1
  if not ready then
    ready = redis.call("HINCRBY", waits_key(branch), job.task, 1) == job.needs
    if ready then redis.call("HDEL", waits_key(branch), job.task) end
  end
  if going and going.job == job then
    put_in_flight(branch, job.task)
    forget_planned(going.record, tonumber(going.t[2] or "0"))
  elseif ready then
    unlock(home, run, name, branch, job, at, {id, r[19], r[18], r[8], r[20]})
  end
end
if left == 0 and gone + before > 0 then
  branch_lost(home, run, name, "the outputs of " .. gone + before .. " of its tasks are " .. GONE, stamp, at)
  return ended("failed", 0)
elseif left == 0 then
  local all = latest + 1
  put(run, all, "crew_kickoff_completed", name, "", 0, scope or 0, 0, "")
  if asked_for(on, "crew_kickoff_completed") then
    checkpoint(run, name, branch, "crew_kickoff_completed", "", stamp, at)
  end
  known.events = all
  if last then known.run = {id, r[9], bundle, r[10], batch, r[11]} end
  finish(home, run, name, "completed", "", at, known)
  return ended("completed", all)
end
if tonumber(asked or 0) > 0 and wait_if_asked(run, name, branch, left, stamp, at) then
  return ended("waiting", 0)
end
if not going then return ended("running", 0) end
local job, t, found = going.job, going.t, going.found
t[2] = string.format("%d", (t[2] or 0) + 1)
r[15] = latest
for i = 1, #found.context, 2 do
  if found.context[i] == key then found.context[i + 1] = whole end
end
take(home, run, r, name, branch, b, job.task, going.record, t, worker, process, nonce, found, stamp, at,
     {"attempt", t[2], unpack(planned(job))})
return {"committed", seq, "running", told, 0, given(r, b, job.task, t, found, job.task, tonumber(t[2]), id, name)}
