-- Accept runs of one plan, which differ in their inputs alone. Those that are there stay as they are.
--
-- KEYS home bundle
-- ARGV batch:text runs:new_runs fields:run_fields plan:text ready:tasks tasks_left:int stamp:text
-- USES now queued emit send unlock journals checkpoint intact create
--
-- runs: JSON list of {id, number, inputs, beginning?}; the number is its place in the batch. Otherwise as for create_run.lua.
-- Returns {"no bundle"}, or for each run "created", "exists" or, where another one has its id, "taken".
if fields.bundle ~= "" and redis.call("HEXISTS", bundle, "data") == 0 then return {"no bundle"} end
intact_batch(home, batch)
intact_beginning(home, fields, ready)
local answers, new, named = {}, 0, {}
for i, one in ipairs(runs) do
  local run = run_key(home, one.id)
  if named[one.id] then
    answers[i] = "exists"
  else
    local unknown = is_unknown(run, ready)
    if not unknown and redis.call("EXISTS", run) == 1 then
      answers[i] = redis.call("HGET", run, "batch") == batch and "exists" or "taken"
    else
      answers[i] = "created"
      new = new + 1
      named[one.id] = true
      if not unknown then intact_new(run, ready) end
    end
  end
end
if new == 0 then return answers end
local at = now()
fields.batch = batch
begin_bundle(bundle, fields, plan, new)
redis.call("HINCRBY", batch_key(home, batch), "active", new)
for i, one in ipairs(runs) do
  if answers[i] == "created" then
    fields.inputs, fields.beginning = one.inputs, one.beginning
    create(home, run_key(home, one.id), one.id, fields, plan, ready, tasks_left, stamp, at)
    redis.call("ZADD", batch_runs_key(home, batch), one.number, one.id)
  end
end
for _, k in ipairs({batch_key(home, batch), batch_runs_key(home, batch), batch_ended_key(home, batch)}) do redis.call("PERSIST", k) end
return answers
