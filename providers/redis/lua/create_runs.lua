-- Accept runs of one plan, which differ in their inputs alone. Those that are there stay as they are.
--
-- KEYS home bundle
-- ARGV batch:text total:int? runs:new_runs sha:text fields:flat keep:int max_checkpoints:int queue:text direct:int on:text digest:text plan:text ready:tasks tasks_left:int stamp:text messages:rest
-- USES now queued emit send unlock journals checkpoint intact create
--
-- runs: JSON list of {id, number, inputs, beginning?}; the number is its place in the batch. total: how many the batch is to have,
-- "" if that is not known. Otherwise as for create_run.lua.
-- Returns {"no bundle"}, or for each run "created", "exists", where another one has its id "taken", or "stopped" if it is not there and
-- the batch takes no new ones (stop_batch.lua).
all_there(messages, direct, ready)
if sha ~= "" and redis.call("HEXISTS", bundle, "data") == 0 then return {"no bundle"} end
local stopped = intact_batch(home, batch)
intact_beginning(home, queue, direct, ready)
local answers, new, numbers, named, keys = {}, {}, {}, {}, {}
for i, one in ipairs(runs) do
  one.key = run_key(home, one.id)
  first_keys(one.key, ready, keys)
end
local all_unknown = are_unknown(keys)
for i, one in ipairs(runs) do
  if named[one.id] then
    answers[i] = "exists"
  else
    one.unknown = all_unknown or is_unknown(one.key, ready)
    if not one.unknown and redis.call("EXISTS", one.key) == 1 then
      answers[i] = redis.call("HGET", one.key, "batch") == batch and "exists" or "taken"
    elseif stopped then
      answers[i] = "stopped"
    else
      answers[i] = "created"
      new[#new + 1] = one
      numbers[#numbers + 1] = one.number; numbers[#numbers + 1] = one.id
      named[one.id] = true
      if not one.unknown then intact_new(one.key, ready) end
    end
  end
end
if #new == 0 then return answers end
local watched = asked_for(on, "crew_kickoff_started")
if is_usual(sha, direct, watched, all_unknown) then
  needs("HINCRBY", "HSETNX", "PERSIST", "HSET", "XADD", "COPY", "RENAME", "SADD", "ZADD")
else
  needs_all()
end
local at = now()
begin_bundle(bundle, sha, digest, plan, #new)
redis.call("HINCRBY", batch_key(home, batch), "active", #new)
if total ~= "" then redis.call("HSET", batch_key(home, batch), "total", total) end
create(home, new, sha, fields, keep, max_checkpoints, queue, direct, watched, batch, plan, ready, messages, tasks_left, stamp, at)
add_all("ZADD", batch_runs_key(home, batch), numbers)
for _, k in ipairs({batch_key(home, batch), batch_runs_key(home, batch), batch_ended_key(home, batch)}) do redis.call("PERSIST", k) end
return answers
