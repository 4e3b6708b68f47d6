-- Cancel a run: its claims are revoked, so nothing more of it is written, and their workers are told to check.
--
-- KEYS home run
-- ARGV branch:text reason:text
-- USES now queued emit send is_active close account release recall journals lifetime finish intact
--
-- branch: "" for every branch that runs or waits, else that one alone.
-- Returns "running" or "waiting" if this stopped something; else the status of the run, or of that branch: "gone" if it
-- is not there.
--
-- What a run that is over has in its queues tells no worker anything, and stays for ever where none serves them. Of a
-- long queue it is left to the workers: to look through it would take milliseconds.
local MOST = 1000
local function take_out(queue, id)
  for _, one in ipairs({"LLEN", "LRANGE", "LSET", "LREM"}) do if not may(one, queue) then return end end
  if redis.call("LLEN", queue) > MOST then return end
  local found = 0
  for place, message in ipairs(redis.call("LRANGE", queue, 0, -1)) do
    if string.find(message, '"delivery_tag":"' .. id .. ".", 1, true) then
      redis.call("LSET", queue, place - 1, "")
      found = found + 1
    end
  end
  if found > 0 then redis.call("LREM", queue, found, "") end
end
local r = redis.call("HMGET", run, "status", "branch")
if not r[1] then return "gone" end
local asked = branch ~= "" and branch or r[2]
intact_run(home, run, asked)
intact_ends(home, run, math.huge)
local at = now()
local was = redis.call("HGET", branch_key(run, asked), "status") or "gone"
local stopped
for _, name in ipairs(branch ~= "" and {branch} or redis.call("SMEMBERS", branches_key(run))) do
  local status = redis.call("HGET", branch_key(run, name), "status")
  if status == "running" or status == "waiting" then
    recall(home, run, name)
    emit(run, "run_cancelled", "branch", name, "started", redis.call("HGET", branch_key(run, name), "scope") or 0, "reason", reason)
    finish(home, run, name, "cancelled", reason, at)
    if not stopped or name == asked then stopped = status end
  end
end
local over = redis.call("HMGET", run, "id", "queue", "live")
if stopped and tonumber(over[3]) == 0 then
  take_out(over[2], over[1])
  take_out(queue_for(over[2], "thread"), over[1])
end
return stopped or was
