-- A write that shows a token which no longer holds: it changes nothing, and the run says that it came.
local function refuse(run, name, task, token, operation)
  if redis.call("EXISTS", run) == 1 then
    emit(run, "write_refused", "branch", name, "task", task, "token", token, "operation", operation)
  end
  return {"refused"}
end
