-- Take the exclusive right to one task, and all that is needed to do it.
--
-- KEYS home run task
-- ARGV name:text key:text attempt:int worker:text process:text nonce:text stamp:text unfit:text
-- USES now queued emit checkpoint intact send goes_on take_along
--
-- name: the branch. key: the task. nonce: one per delivery, so that a claim whose answer was lost can be asked again:
-- it stands, even if the branch was over meanwhile, and whoever holds it must know.
-- unfit: the adapters that this worker cannot serve, with commas around. Their jobs come again a second later, to others.
-- Returns {"claimed", token, {failures, failed}, run fields, scope, own, context outputs, recorded steps}, where scope is the sequences of
-- the branch's start, the task's, and this claim's own event, whether it is the first one since the branch's start, the
-- triggers of the run's checkpoints, the start of its agent, if that is at work, and whether the task is the first that was ever claimed
-- on the branch, and own is what the branch does and the inputs that differ on it,
-- failures count since the branch was last resumed, failed since ever;
-- or {why not}: "gone", the branch's status, "taken", "unfit", "newer" (it is of a newer protocol than ours; likewise), or "unregistered" (beat first: a claim needs a lease).
local r = redis.call("HMGET", run, "id", "bundle", "module", "attr", "adapter", "inputs", "plan", "crew",
                     "standin", "token", "created_at", "protocol", "checkpoint_on")
local branch = branch_key(run, name)
local b = redis.call("HMGET", branch, "status", "todo", "inputs")
if not r[1] or not b[1] then return {"gone"} end
local t = redis.call("HMGET", task, "state", "attempt", "context", "timeout", "failures", "nonce", "token",
                     "scope", "started", "claimed", "open", "failed", "claims")
local token = t[7]
local scope, started, claimed = t[8] or 0, t[9], t[10] or 0
local mine, at, ref = t[6] == nonce, now(), r[1] .. "|" .. name .. "|" .. key
if not mine then
  if b[1] ~= "running" then return {b[1]} end
  if t[1] ~= "queued" or t[2] ~= attempt then return {"taken"} end
  if not redis.call("ZSCORE", workers_key(home), worker) then return {"unregistered"} end
  redis.call("ZCARD", queued_key(home))
  local newer = tonumber(r[12] or "1") > PROTOCOL
  if newer or string.find(unfit, "," .. (r[5] or "") .. ",", 1, true) then
    redis.call("ZCARD", due_key(home))
    redis.call("HSET", task, "state", "delayed")
    redis.call("ZREM", queued_key(home), queued_ref(r[1], name, key))
    redis.call("ZADD", due_key(home), at + 1000, ref)
    return {newer and "newer" or "unfit"}
  end
end
-- The outputs of a branch are its own and, from before it left its parent, the parent's. (What is asked for is committed
-- here: that a branch does again what its parent had done needs no look.)
local function output(of, wanted)
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
local open = cjson.decode(t[11] or "[]")[1]
local at_work = open and open[3] == "agent_execution_error" and tonumber(open[1]) or 0
local context = {}
for _, wanted in ipairs(cjson.decode(t[3] or "[]")) do
  context[#context + 1] = wanted
  context[#context + 1] = output(name, wanted)
end
local recorded = redis.call("HGETALL", journal_key(branch, key))
if not mine then
  intact_checkpoints(branch, r[13])
  redis.call("XLEN", events_key(run))
  redis.call("HLEN", claims_key(home, worker))
  take_along(home, run, at, name, key)
  -- The next number, or how many microseconds old the run is if that is more: a store that lost its last second would
  -- otherwise give a number twice, and who got it first would pass for who got it last.
  token = string.format("%.0f", math.max((r[10] or 0) + 1, (at - (r[11] or at)) * 1000))
  redis.call("HSET", run, "token", token)
  -- Whose the task was, and how many steps each found, is what tells later that the store forgot some, whatever came since.
  local claims = string.gsub(t[13] or "", "^" .. string.rep("%d+:%d+,", 16), function(all) return string.match(all, ",(.*)$") end)
  claims = claims .. token .. ":" .. #recorded / 2 .. ","
  redis.call("HSET", task, "state", "running", "token", token, "worker", worker, "process", process, "nonce", nonce,
             "claims", claims)
  redis.call("ZREM", queued_key(home), queued_ref(r[1], name, key))
  local deadline = 0
  if tonumber(t[4] or "0") > 0 then deadline = at + t[4] end
  redis.call("HSET", claims_key(home, worker), ref, token .. "|" .. process .. "|" .. string.format("%.0f", deadline))
  local about = {"branch", name, "task", key, "attempt", attempt, "worker", worker, "token", token}
  if started then
    claimed = emit(run, "task_resumed", "parent", started, unpack(about))
    redis.call("HSET", task, "claimed", claimed)
  else
    local b = redis.call("HMGET", branch, "scope", "begun")
    scope = b[1] or 0
    started = emit(run, "task_started", "parent", scope, unpack(about))
    claimed = started
    if not b[2] or string.match(b[2], "^%d+") ~= tostring(scope) then
      redis.call("HSET", branch, "begun", scope .. " " .. started)
    end
    if not b[2] then redis.call("HSET", branch, "opener", key) end
    redis.call("HSET", task, "scope", scope, "started", started, "claimed", claimed, "began", string.format("%.0f", at))
    checkpoint(run, name, branch, "task_started", key, stamp, at)
  end
end
local first = redis.call("HGET", branch, "begun") == scope .. " " .. claimed
return {"claimed", tonumber(token), {tonumber(t[5] or "0"), tonumber(t[12] or "0")}, {r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9] or ""},
        {tonumber(scope), tonumber(started or "0"), tonumber(claimed), first and 1 or 0,
         r[13] or "", at_work,
         redis.call("HGET", branch, "opener") == key and 1 or 0}, {b[2] or "", b[3] or ""}, context, recorded}
