-- A branch on which something was asked waits when all that is in flight has asked a person something. It stays live: nothing
-- of it expires.
local function wait_if_asked(run, name, branch, stamp, at)
  local asked = tonumber(redis.call("HGET", branch, "asked") or "0")
  if redis.call("SCARD", open_key(branch)) ~= asked then return false end
  redis.call("HSET", branch, "status", "waiting")
  if redis.call("HGET", run, "branch") == name then redis.call("HSET", run, "status", "waiting") end
  emit(run, "flow_paused", "branch", name, "parent", redis.call("HGET", branch, "scope") or 0)
  checkpoint(run, name, branch, "flow_paused", "", stamp, at)
  return true
end
