-- A branch on which something was asked waits when all that is left of it, or all that is in flight and not set aside by a
-- resume, has asked a person something. (Who resumed as an older version counted none that are aside: left is known to all.)
-- It stays live: nothing of it expires.
local function wait_if_asked(run, name, branch, left, stamp, at)
  local b = redis.call("HMGET", branch, "asked", "aside")
  local asked = tonumber(b[1] or "0")
  if left ~= asked and redis.call("SCARD", open_key(branch)) - tonumber(b[2] or "0") ~= asked then return false end
  redis.call("HSET", branch, "status", "waiting")
  if redis.call("HGET", run, "branch") == name then redis.call("HSET", run, "status", "waiting") end
  emit(run, "flow_paused", "branch", name, "parent", redis.call("HGET", branch, "scope") or 0)
  checkpoint(run, name, branch, "flow_paused", "", stamp, at)
  return true
end
