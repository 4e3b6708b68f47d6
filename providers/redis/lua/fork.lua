-- Fork: make a branch that leaves another one at a position, and runs beside it. It costs the same wherever that is:
-- what was committed up to there stays where it is, but for the outputs that were edited.
--
-- KEYS home run branch bundle
-- ARGV name:text fields:fields parent:text expected_plan:text edits:pairs_of_texts ready:tasks kept:texts upto:int? tasks_left:int stamp:text
-- USES now queued emit send unlock journals checkpoint lifetime begin finish intact is_active migrate_run carry lost
--
-- fields: JSON object of the branch's own fields: where it left parent, what it is to do, what was edited, in order, and
-- inputs that differ. edits: JSON list of {task, its output as JSON without the opening brace}, in the same order.
-- ready: JSON list of {task, context, timeout}; kept: JSON list of those of them that work on the same as on parent: where
-- they are in flight there, the steps recorded so far come along and are not paid again. upto: the sequence of the checkpoint
-- that was named, if one was: then it is those that were recorded by then, also of a task that is done meanwhile. All that was computed from the plan with the digest expected_plan.
-- Returns "forked", "gone", "changed" (the code did: read again), "taken" (the name) or "no bundle".
local r = redis.call("HMGET", run, "plan", "bundle", "keep")
if not r[1] or redis.call("EXISTS", branch_key(run, parent)) == 0 then return "gone" end
if r[1] ~= expected_plan then return "changed" end
if redis.call("EXISTS", branch) == 1 then return "taken" end
if r[2] ~= "" and redis.call("HEXISTS", bundle, "data") == 0 then return "no bundle" end
local at = now()
intact_run(home, run, name)
intact_ends(home, run, 0)
intact_branch(branch)
intact_tasks(branch, ready)
local recorded = {}
for _, task in ipairs(kept) do recorded[task] = recorded_by(branch_key(run, parent), branch, task, upto) end
local before = gone_before(run, parent, fields.parent_seq)
migrate_run(home, run, at)
local flat = {"parent", parent, "left", tasks_left, "created_at", at}
for field, value in pairs(fields) do flat[#flat + 1] = field; flat[#flat + 1] = value end
redis.call("HSET", branch, unpack(flat))
redis.call("SADD", branches_key(run), name)
redis.call("HINCRBY", run, "tasks", tasks_left)
for _, edit in ipairs(edits) do
  local seq = redis.call("HINCRBY", branch, "seq", 1)
  redis.call("HSET", outputs_key(branch), edit[1], '{"seq":' .. seq .. ',"token":0,"edited":1,' .. edit[2])
end
if #edits > 0 then redis.call("HSET", branch, "edited", #edits) end
if before > 0 then redis.call("HSET", branch, "before", before) end
begin(home, run, name, at)
emit(run, "checkpoint_fork_completed", "branch", name, "parent_branch", parent, "checkpoint_id", fields.from or "")
local scope = emit(run, "crew_kickoff_started", "branch", name)
redis.call("HSET", branch, "scope", scope)
checkpoint(run, name, branch, "crew_kickoff_started", "", stamp, at)
for _, task in ipairs(kept) do
  carry(branch_key(run, parent), branch, task, recorded[task], r[3])
end
for _, job in ipairs(ready) do unlock(home, run, name, branch, job, at) end
if tasks_left == "0" then
  emit(run, "crew_kickoff_completed", "branch", name, "started", scope)
  checkpoint(run, name, branch, "crew_kickoff_completed", "", stamp, at)
  finish(home, run, name, "completed", "", at)
end
return "forked"
