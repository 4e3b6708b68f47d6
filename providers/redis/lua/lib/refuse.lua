-- A write that shows a token which no longer holds: it changes nothing, and the run says that it came.
local function refuse(run, name, task, token, operation)
  if redis.call("HLEN", run) > 0 then
    redis.call("XLEN", events_key(run))
    emit(run, "write_refused", "branch", name, "task", task, "token", token, "operation", operation)
  end
  return {"refused"}
end
