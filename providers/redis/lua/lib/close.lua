-- What the code of a task began and did not end ends with the attempt, the innermost first, so that every start has one
-- end. The record lists it in "open": sequence, parent, the type that ends it when it is interrupted, and its task.
local function close_open(run, name, record)
  local open = cjson.decode(redis.call("HGET", record, "open") or "[]")
  for i = #open, 1, -1 do
    local seq, parent, ends, task = unpack(open[i])
    emit(run, ends, "branch", name, "task", task, "parent", parent, "started", seq, "error", "interrupted")
  end
  if #open > 0 then redis.call("HDEL", record, "open") end
end
