-- Whether the branch runs: several branches of a run may, side by side. A task that is still in flight on
-- one that is over, since before it failed, ends as a straggler: its output is kept, and it unlocks, sends and fails nothing.
local function is_active(run, name)
  return redis.call("HGET", branch_key(run, name), "status") == "running"
end
