-- What the code of a task began and did not end ends with the attempt, the innermost first, so that every start has one
-- end. The record lists it in "open": sequence, parent, the type that ends it when it is interrupted, and its task.
-- handed_over: the task is handed over. A native agent stays open then: the next claim continues under its start.
local AGENT = "agent_execution_error"
local function close_open(run, name, record, handed_over)
  local r = redis.call("HMGET", record, "open", "started")
  local open, kept = cjson.decode(r[1] or "[]"), nil
  handed_over = handed_over and redis.call("HGET", run, "adapter") == "native"
  for i = #open, 1, -1 do
    local seq, parent, ends, task = unpack(open[i])
    if handed_over and ends == AGENT and tostring(parent) == r[2] then
      kept = open[i]
    else
      emit(run, ends, "branch", name, "task", task, "parent", parent, "started", seq, "error", "interrupted")
    end
  end
  if kept then
    redis.call("HSET", record, "open", cjson.encode({kept}))
  elseif #open > 0 then
    redis.call("HDEL", record, "open")
  end
end
