-- Give a process the claim on a task, and all that is needed to perform it. What is checked before: claim.lua, and
-- commit.lua, whose process continues with a task that its commit makes ready.
--
-- What is read of a run, of a branch, and of a task's record. A field takes longer to find than to return, so each is read
-- where it is used. more: what else, at the end.
local function of_run(run, ...)
  return redis.call("HMGET", run, "id", "bundle", "module", "attr", "adapter", "inputs", "plan", "crew", "standin", "token", "created_at",
                    "protocol", "checkpoint_on", "environment", "events", ...)
end
local function of_branch(branch, ...)
  return redis.call("HMGET", branch, "status", "todo", "inputs", "begun", "opener", "scope", ...)
end
local function of_task(task)
  return redis.call("HMGET", task, "state", "attempt", "context", "timeout", "failures", "nonce", "token", "scope", "started", "claimed",
                    "open", "failed", "claims", "reached")
end
-- The outputs of a branch are its own and, from before it left its parent, the parent's. (What is asked for is committed
-- here: that a branch does again what its parent had done needs no look.)
local function seen_output(run, of, wanted)
  local limit
  while of do
    local found = redis.call("HGET", outputs_key(branch_key(run, of)), wanted)
    if found and (not limit or tonumber(string.match(found, '^{"seq":(%d+)')) <= limit) then return found end
    local b = redis.call("HMGET", branch_key(run, of), "parent", "parent_seq")
    if not b[1] then return "" end
    of = b[1]
    limit = math.min(limit or math.huge, tonumber(b[2]))
  end
end
-- What a claim is given beside what stands in its run and its record, read before anything is written. but: a task of
-- which the output is not yet there, and comes.
local function gathered(run, name, branch, key, t, but)
  local open, found = cjson.decode(t[11] or "[]")[1], {}
  found.context, found.recorded = {}, t[2] and redis.call("HGETALL", journal_key(branch, key)) or {}
  found.at_work = open and open[3] == "agent_execution_error" and tonumber(open[1]) or 0
  for _, wanted in ipairs(cjson.decode(t[3] or "[]")) do
    found.context[#found.context + 1] = wanted
    found.context[#found.context + 1] = wanted == but and "" or seen_output(run, name, wanted)
  end
  return found
end
-- The answer to a claim that holds, as claim.lua says; r, b and t are what of_run, of_branch and of_task give. It is one list: in each
-- of several the server would look for seven fields, to see what it is. The rest is what comes between "how many" and the outputs.
local function given(r, b, key, t, found, ...)
  local scope, started, claimed = t[8] or "0", t[9] or "0", t[10] or "0"
  local answer = {"claimed", tonumber(t[7]), tonumber(t[5] or 0), tonumber(t[12] or 0), r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9] or "",
                  tonumber(scope), tonumber(started), tonumber(claimed), b[4] == scope .. " " .. claimed and 1 or 0, r[13] or "",
                  found.at_work, b[5] == key and 1 or 0, b[2] or "", b[3] or "", r.like or "", #found.context, ...}
  for _, one in ipairs(found.context) do answer[#answer + 1] = one end
  for _, one in ipairs(found.recorded) do answer[#answer + 1] = one end
  return answer
end
-- What a run is like: a digest of all that it does not have for itself (scripts.py), if it has no events but these, and is not of an
-- older protocol: then a claim changes it. r: of_run with it.
local function set_likeness(r, events) r.like = r[15] == events and tonumber(r[12] or "1") == PROTOCOL and r[16] or "" end
-- Whether more than usual may come of it: its journal is gone, a checkpoint is asked for, or old events go.
local function is_seldom(r, t, found)
  return tonumber(t[14] or 0) > 0 and #found.recorded == 0 or asked_for(r[13], "task_started") or (r[15] or 0) % 100 == 99
end
-- Make the task this process's. Writes into b and t what is new, so that it can be given. r says how many events there are by
-- now. opened: what else is new in the record, as fields and values.
local function take(home, run, r, name, branch, b, key, task, t, worker, process, nonce, found, stamp, at, opened)
  -- The next number, or how many microseconds old the run is if that is more: a store that lost its last second would
  -- otherwise give a number twice, and who got it first would pass for who got it last.
  local token = string.format("%d", math.max((r[10] or 0) + 1, (at - (r[11] or at)) * 1000))
  local seq = (r[15] or 0) + 1
  -- Its journal is gone.
  if #found.recorded == 0 and tonumber(t[14] or 0) > 0 then tell_workers(home) end
  redis.call("HSET", run, "token", token, "events", seq)
  -- The claims of the task, and how many steps each found, show later that the store lost some, whatever came since.
  local claims = t[13] and string.gsub(t[13], "^" .. string.rep("%d+:%d+,", 16), function(all) return string.match(all, ",(.*)$") end)
  claims = (claims or "") .. token .. ":" .. #found.recorded / 2 .. ","
  local deadline = tonumber(t[4] or 0)
  if deadline > 0 then deadline = at + deadline end
  redis.call("HSET", claims_key(home, worker), r[1] .. "|" .. name .. "|" .. key,
             token .. "|" .. process .. "|" .. (deadline > 0 and string.format("%d", deadline) or "0"))
  local record = {"state", "running", "token", token, "worker", worker, "process", process, "nonce", nonce, "claims", claims,
                  unpack(opened or {})}
  t[7] = token
  if t[9] then
    t[10] = tostring(append(run, seq, "task_resumed", "parent", t[9], "branch", name, "task", key, "attempt", t[2],
                            "worker", worker, "token", token))
    redis.call("HSET", task, "claimed", t[10], unpack(record))
    return
  end
  t[8] = b[6] or "0"
  -- As append would, which costs three times as much.
  local started = in_short("task_started")
  t[9] = tostring(put(run, seq, started, name, key, t[8], 0, 0, '["' .. t[2] .. '",' .. cjson.encode(worker) .. ',"' .. token .. '"]'))
  t[10] = t[9]
  local first = t[8] .. " " .. t[9]
  if not b[4] then
    b[4], b[5] = first, key
    redis.call("HSET", branch, "begun", first, "opener", key)
  elseif string.match(b[4], "^%d+") ~= t[8] then
    b[4] = first
    redis.call("HSET", branch, "begun", first)
  end
  redis.call("HSET", task, "scope", t[8], "started", t[9], "claimed", t[10], "began", at, unpack(record))
  if asked_for(r[13], "task_started") then checkpoint(run, name, branch, "task_started", key, stamp, at) end
end
