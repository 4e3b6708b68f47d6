-- Commit a task of which one other waits, that for nothing else, and with which this process continues: as the tasks of a
-- sequential crew do.
--
-- KEYS home run
-- ARGV name:text worker:text process:text key:text token:int scope:text output:text log_entry:text next:text context:text timeout:int pool:text recorded:int nonce:text stamp:text
-- USES now emit journals checkpoint intact lost output take
--
-- As commit, of which this is what such a task needs, by the fewest commands. next, context, timeout, pool: the task that becomes ready,
-- as a list of tasks has it; its context is this task, or none. scope: the start of the branch that the claim knows, since which nothing of the run is new that
-- a claim gives.
-- Returns {"committed", the event's sequence, the token of the next task, its start, 1 if that is the first one since the branch's start,
-- 1 if it is the first that was ever claimed on the branch, and the output where that is its context}; or {"other"} where more comes of it, or less: nothing is done then, and
-- commit says it.
local call, branch = redis.call, branch_key(run, name)
local task, record = task_key(branch, key), task_key(branch, next)
local journal = journal_key(branch, key)
local t = call("HMGET", task, "token", "scope", "started", "attempt", "began", "claims", "prompt_tokens", "completion_tokens", "begun", "open",
               "numbered")
local b = call("HMGET", branch, "status", "scope", "begun", "opener", "seq", "left", "head", "done", "from", "holes", "aside")
local r = call("HMGET", run, "id", "token", "created_at", "protocol", "checkpoint_on", "events", "max_checkpoints")
if t[1] ~= token or t[9] and t[9] ~= "" or t[10] or t[11] then return {"other"} end
if b[1] ~= "running" or b[2] ~= scope or tonumber(b[6] or "0") < 2 then return {"other"} end
if b[10] or tonumber(b[11] or "0") > 0 then return {"other"} end
if tonumber(r[4] or "1") ~= PROTOCOL or call("HLEN", record) > 0 then return {"other"} end
if recorded ~= "0" and steps_missing(journal, recorded, t[6], token) > 0 then return {"other"} end
local id, on, most = r[1], r[5], r[7]
call("XLEN", events_key(run))
call("SCARD", open_key(branch))
call("HLEN", claims_key(home, worker))
local done = commits_of(branch, b[8])
intact_checkpoints(branch, on)
if tonumber(most or "0") > 0 or (r[6] or 0) % 100 > 96 or asked_for(on, "task_started") then
  needs_all()
else
  needs("RPUSH", "DEL", "SREM", "HDEL", "XADD", "HSET", "SADD")
  if asked_for(on, "task_completed") then needs("ZADD") end
end
local at, seq, told = now(), (b[5] or 0) + 1, (r[6] or 0) + 1
local number = string.format("%d", seq)  -- a number in .. takes four times as long
local whole = recorded_output(number, token, t[6], worker, t[4], t[5], t[7], t[8], at, output)
if call("HSETNX", outputs_key(branch), key, whole) == 0 then return {"other"} end  -- the first write
call("RPUSH", commit_log_key(branch), "[" .. number .. log_entry)
call("DEL", task, journal)
call("SREM", open_key(branch), key)
call("HDEL", claims_key(home, worker), id .. "|" .. name .. "|" .. key)
put(run, told, in_short("task_completed"), name, key, t[2] or 0, t[3] or 0, 0, '["' .. number .. '"]')
local fields = {"seq", number, "left", b[6] - 1, "done", done + 1}
if asked_for(on, "task_completed") then
  fields[7], fields[8] = "head", put_checkpoint(id, name, branch, on, most, seq, b[7] or b[9] or "", "task_completed", key, stamp, at)
end
call("HSET", branch, unpack(fields))
call("SADD", open_key(branch), next)
local opened = {"attempt", "1"}
if context ~= "[]" then opened[3], opened[4] = "context", context end
if timeout ~= "0" then opened[#opened + 1] = "timeout"; opened[#opened + 1] = timeout end
if pool ~= "" then opened[#opened + 1] = "pool"; opened[#opened + 1] = pool end
-- As of_run, of_branch and of_task in take.lua give them
local n, line = {[2] = "1", [4] = timeout}, {[4] = b[3], [5] = b[4], [6] = b[2]}
take(home, run, {[1] = id, [10] = r[2], [11] = r[3], [13] = on, [15] = told}, name, branch, line, next, record, n, worker, process, nonce,
     {recorded = {}}, stamp, at, opened)
return {"committed", told, tonumber(n[7]), tonumber(n[9]), line[4] == n[8] .. " " .. n[10] and 1 or 0, line[5] == next and 1 or 0,
        context ~= "[]" and whole or nil}
