-- Accept a run: once this has returned, the run will end, or wait for a person.
--
-- KEYS home run bundle
-- ARGV run_id:text inputs:text beginning:text sha:text fields:flat keep:int max_checkpoints:int queue:text direct:int on:text digest:text plan:text ready:tasks tasks_left:int stamp:text messages:rest
-- USES now queued emit send unlock journals checkpoint intact create
--
-- sha: the bundle's; "" for a run that keeps its plan itself. fields: JSON list of the run's own fields and their values. queue: where its
-- jobs go. direct: 1 if their messages are pushed here, else 0. on: the triggers of its checkpoints. digest: the plan's.
-- ready: JSON list of {task, context, timeout, pool} to run first. messages: theirs,
-- if they are pushed here, each in the parts between which the run's id stands.
-- Returns "created", "exists" or "no bundle".
all_there(messages, direct, ready)
local unknown = is_unknown(run, ready)
if not unknown and redis.call("EXISTS", run) == 1 then return "exists" end
if sha ~= "" and redis.call("HEXISTS", bundle, "data") == 0 then return "no bundle" end
local watched = asked_for(on, "crew_kickoff_started")
intact_beginning(home, queue, direct, ready)
if not unknown then intact_new(run, ready) end
if is_usual(sha, direct, watched, unknown) then
  needs("HSETNX", "PERSIST", "HSET", "XADD", "SADD", "ZADD")
else
  needs_all()
end
local at = now()
begin_bundle(bundle, sha, digest, plan, 1)
local one = {key = run, id = run_id, inputs = inputs, beginning = beginning ~= "" and beginning or nil}
create(home, {one}, sha, fields, keep, max_checkpoints, queue, direct, watched, nil, plan, ready, messages, tasks_left, stamp, at)
return "created"
