-- Append an event to the run's stream; one sequence per run, over all workers.
local function emit(run, kind, ...)
  local seq = redis.call("HINCRBY", run, "events", 1)
  redis.call("XADD", events_key(run), "MAXLEN", "~", 2000, "*", "seq", seq, "type", kind, ...)
end
