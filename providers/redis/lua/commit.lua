-- End a task: output, checkpoint and pruning, what it unlocks and their jobs, all or nothing.
--
-- KEYS home run branch task journal outputs
-- ARGV name:text key:text token:int worker:text output:text trace:text replayed:entries? next:tasks growth:growth? stamp:text
-- USES now queued emit refuse send unlock close account checkpoint lifetime finish wait grow intact
--
-- output: the record as JSON without its opening brace. trace: the task and what it used, as the rest of a JSON list that
-- begins with its sequence. next: JSON list of {task, needs, context, timeout} that wait
-- for this one, where needs is how many tasks each waits for in all. growth: "" or, for a plan that grows by next, JSON of
-- the shared texts to put, those gone, lines to note, and the version that all this was made from.
-- Returns {"committed", sequence, the branch's status, the event's sequence, that of the branch's completion or 0}, also
-- when this very token committed before (without the last two), {"changed"} (the shared texts did: look again), or
-- {"refused"}.
local done = redis.call("HGET", outputs, key)
if done then
  local seq, by = string.match(done, '^{"seq":(%d+),"token":(%d+)')
  if by == token then return {"committed", tonumber(seq), redis.call("HGET", branch, "status")} end
  return refuse(run, name, key, token, "commit")
end
local t = redis.call("HMGET", task, "token", "scope", "started", "prompt_tokens", "completion_tokens", "begun", "attempt",
                     "began", "claims")
if t[1] ~= token then return refuse(run, name, key, token, "commit") end
if growth and (redis.call("HGET", shared_key(branch), "version") or "") ~= growth.version then return {"changed"} end
local unlocked = growth and #next or 0
local r, b = redis.call("HMGET", run, "id", "queue", "envelope", "checkpoint_on"), redis.call("HMGET", branch, "status", "left")
redis.call("XLEN", events_key(run))
redis.call("LLEN", order_key(branch))
redis.call("SCARD", open_key(branch))
redis.call("HLEN", claims_key(home, worker))
intact_checkpoints(branch, r[4])
if replayed or (t[6] and t[6] ~= "") then redis.call("HLEN", ledger_key(run)) end
if b[1] ~= "running" then
  intact_ends(home, run, math.huge)
elseif #next > 0 then
  intact_queue(home, r[2], r[3])
  redis.call("HLEN", waits_key(branch))
  intact_tasks(branch, next)
end
if tonumber(b[2]) + unlocked <= 1 then
  intact_open(home, branch)
  intact_ends(home, run, 1)
end
local at = now()
local id = r[1]
local seq = redis.call("HINCRBY", branch, "seq", 1)
local spent = ""
if t[4] or t[5] then spent = '"tokens":[' .. (t[4] or 0) .. "," .. (t[5] or 0) .. "]," end
local of = ""  -- whose it was, if it was not this claim's alone: see look_back.lua
if t[9] then of = '"of":"' .. (string.find(t[9], ",%d") and t[9] or "") .. '",' end
local by = ""
if t[7] and t[8] then by = '"by":[' .. cjson.encode(worker) .. "," .. t[7] .. "," .. t[8] .. "," .. at - t[8] .. "]," end
redis.call("HSET", outputs, key, '{"seq":' .. seq .. ',"token":' .. token .. "," .. of .. by .. spent .. output)
redis.call("RPUSH", order_key(branch), "[" .. seq .. trace)
close_open(run, name, task)
redis.call("DEL", task, journal)
redis.call("SREM", open_key(branch), key)
redis.call("HDEL", claims_key(home, worker), id .. "|" .. name .. "|" .. key)
account(run, name, key, "replayed", replayed)
account(run, name, key, "in_doubt", noted(t[6]))  -- what its threads are still at, and what broke off
local told = emit(run, "task_completed", "branch", name, "task", key, "commit_seq", seq, "parent", t[2] or 0, "started", t[3] or 0)
if growth then grow(run, name, branch, key, seq, growth) end
checkpoint(run, name, branch, "task_completed", key, stamp, at)
local left = redis.call("HINCRBY", branch, "left", unlocked - 1)
if b[1] ~= "running" then
  -- What was paid for is kept. A resume finds what this unlocks.
  local ttl = redis.call("PTTL", run)
  if ttl > 0 then each_key(run, function(k) redis.call("PEXPIRE", k, ttl) end) end
  return {"committed", seq, redis.call("HGET", branch, "status"), told, 0}
end
for _, job in ipairs(next) do
  local ready = job.needs == 1
  if not ready then
    ready = redis.call("HINCRBY", waits_key(branch), job.task, 1) == job.needs
    if ready then redis.call("HDEL", waits_key(branch), job.task) end
  end
  if ready then unlock(home, run, name, branch, job, at) end
end
if left == 0 then
  local all = emit(run, "crew_kickoff_completed", "branch", name, "started", redis.call("HGET", branch, "scope") or 0)
  checkpoint(run, name, branch, "crew_kickoff_completed", "", stamp, at)
  finish(home, run, name, "completed", "", at)
  return {"committed", seq, "completed", told, all}
end
if wait_if_asked(run, name, branch, left, stamp, at) then return {"committed", seq, "waiting", told, 0} end
return {"committed", seq, "running", told, 0}
