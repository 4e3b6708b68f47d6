-- Accept a run: once this has returned, the run will end, or wait for a person.
--
-- KEYS home run bundle
-- ARGV run_id:text fields:run_fields plan:text ready:tasks tasks_left:int stamp:text
-- USES now queued emit send unlock journals checkpoint intact create
--
-- fields: JSON object of the run's own fields. ready: JSON list of {task, context, timeout, pool} to run first.
-- Returns "created", "exists" or "no bundle".
local unknown = is_unknown(run, ready)
if not unknown and redis.call("EXISTS", run) == 1 then return "exists" end
if fields.bundle ~= "" and redis.call("HEXISTS", bundle, "data") == 0 then return "no bundle" end
intact_beginning(home, fields, ready)
if not unknown then intact_new(run, ready) end
if is_usual(fields, unknown) and not fields.batch then
  needs("HSETNX", "PERSIST", "HSET", "XADD", "SADD", "ZADD", "LPUSH")
else
  needs_all()
end
local at = now()
begin_bundle(bundle, fields, plan, 1)
local one = {key = run, id = run_id, inputs = fields.inputs, beginning = fields.beginning}
create(home, {one}, fields, plan, ready, tasks_left, stamp, at)
return "created"
