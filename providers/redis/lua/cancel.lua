-- Cancel a run: its claims are revoked, so nothing more of it is written, and their workers are told to check.
--
-- KEYS home run
-- ARGV branch:text reason:text
-- USES now queued emit send is_active close account release recall journals lifetime finish intact
--
-- branch: "" for every branch that runs or waits, else that one alone.
-- Returns "running" or "waiting" if this stopped something; else the status of the run, or of that branch: "gone" if it
-- is not there.
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
return stopped or was
