-- Refuse a write whose token no longer holds: it changes nothing, and an event of the run records it.
local function refuse(run, name, task, token, operation)
  if redis.call("HLEN", run) > 0 then
    redis.call("XLEN", events_key(run))
    needs("XADD", "HGET", "XTRIM")
    emit(run, "write_refused", "branch", name, "task", task, "token", token, "operation", operation)
  end
  return {"refused"}
end
