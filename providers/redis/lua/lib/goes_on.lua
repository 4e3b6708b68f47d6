-- Whether work on this branch leads to more of it. Several branches of a run may go on side by side. What still runs on
-- one that is over, since before it failed, ends as a straggler: its output is kept, and it unlocks, sends and fails nothing.
local function goes_on(run, name)
  return redis.call("HGET", branch_key(run, name), "status") == "running"
end
