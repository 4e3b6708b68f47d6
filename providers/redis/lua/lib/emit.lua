-- Append an event to the run's stream and return its sequence: one per run, over all workers. Among its fields, parent is
-- the sequence of the event in whose scope it happened, started that of the one it ends, cause that of the one that
-- brought it about; 0 for none. How an entry is laid out says stream.py, which also gives SHORT, and how many are kept.
local SHORT = TYPES_IN_SHORT
local function emit(run, kind, ...)
  local seq = redis.call("HINCRBY", run, "events", 1)
  local common = {branch = "|", task = "", parent = 0, started = 0, cause = 0}
  local names, values, pairs_of = {}, {}, {}
  local given = {...}
  for i = 1, #given, 2 do
    if common[given[i]] then
      common[given[i]] = given[i + 1]
    else
      names[#names + 1] = given[i]
      values[#values + 1] = tostring(given[i + 1])
      pairs_of[#pairs_of + 1] = given[i]
      pairs_of[#pairs_of + 1] = values[#values]
    end
  end
  local short = SHORT[kind]
  if short and short[2] == table.concat(names, ",") then kind = short[1] else values = pairs_of end
  redis.call("XADD", events_key(run), "*", "s", seq, "t", kind,
             "b", common.branch == "main" and "" or common.branch, "k", common.task, "p", common.parent,
             "e", common.started, "c", common.cause, "r", #values > 0 and cjson.encode(values) or "")
  if seq % 100 == 0 then
    local tasks = tonumber(redis.call("HGET", run, "tasks") or "0")
    redis.call("XTRIM", events_key(run), "MAXLEN", "~", EVENTS_KEPT + EVENTS_PER_TASK * tasks)
  end
  return seq
end
