-- Append an event to the run's stream and return its sequence: one per run, over all workers. Among its fields, parent is
-- the sequence of the event in whose scope it happened, started that of the one it ends, cause that of the one that
-- brought it about; 0 for none. How an entry is laid out says stream.py, which also gives in_short, and how many are kept.
IN_SHORT
-- Put an entry into the stream. rest: "" or, as JSON, where kind is in short the values alone of what such events have; else
-- names, too.
local function put(run, seq, kind, branch, task, parent, started, cause, rest)
  redis.call("XADD", events_key(run), "*", "s", seq, "t", kind, "b", branch == "main" and "" or branch, "k", task,
             "p", parent, "e", started, "c", cause, "r", rest)
  if seq % 100 == 0 then
    local tasks = tonumber(redis.call("HGET", run, "tasks") or "0")
    redis.call("XTRIM", events_key(run), "MAXLEN", "~", EVENTS_KEPT + EVENTS_PER_TASK * tasks)
  end
  return seq
end
-- Who has read how many there are may append the next one, and store its number with what else is written to the run.
local function append(run, seq, kind, ...)
  local given = {...}
  local branch, task, parent, started, cause, names, rest = "|", "", 0, 0, 0, "", {}
  for i = 1, #given, 2 do
    local field, value = given[i], given[i + 1]
    if field == "branch" then branch = value
    elseif field == "task" then task = value
    elseif field == "parent" then parent = value
    elseif field == "started" then started = value
    elseif field == "cause" then cause = value
    else
      names = names .. field .. ","
      rest[#rest + 1] = field
      rest[#rest + 1] = tostring(value)
    end
  end
  local code, of = in_short(kind)
  if names == of then
    kind = code
    for i = 2, #rest, 2 do rest[i / 2] = rest[i] end
    for i = #rest, #rest / 2 + 1, -1 do rest[i] = nil end
  end
  return put(run, seq, kind, branch, task, parent, started, cause, #rest > 0 and cjson.encode(rest) or "")
end
local function emit(run, kind, ...) return append(run, redis.call("HINCRBY", run, "events", 1), kind, ...) end
-- Redis allots 4 KB to the newest entries of a stream, and gives back what they did not need with the next 4 KB only. A copy
-- has just what is in it.
local function settle(run)
  if redis.call("COPY", events_key(run), copy_key(run), "REPLACE") == 1 then redis.call("RENAME", copy_key(run), events_key(run)) end
end
