-- Whether a run goes on on this branch: it does so on one at a time. What still runs on another one, since before the
-- run was resumed elsewhere, ends as if the run were over: its output is kept, and it unlocks, sends and fails nothing.
local function goes_on(run, name)
  local r = redis.call("HMGET", run, "status", "branch")
  return r[1] == "running" and r[2] == name
end
