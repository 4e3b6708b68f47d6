-- Append an event to the run's stream and return its sequence: one per run, over all workers. Among its fields, parent is
-- the sequence of the event in whose scope it happened, started that of the one it ends, cause that of the one that
-- brought it about; 0 for none.
local function emit(run, kind, ...)
  local seq = redis.call("HINCRBY", run, "events", 1)
  redis.call("XADD", events_key(run), "MAXLEN", "~", 2000, "*", "seq", seq, "type", kind, ...)
  return seq
end
