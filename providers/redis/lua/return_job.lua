-- A worker that drains received a job and does not claim it: send its message again.
--
-- KEYS home run task
-- ARGV name:text key:text attempt:int
-- USES now queued send intact
--
-- Returns 1 if it was sent on.
local t = redis.call("HMGET", task, "state", "attempt")
if t[1] ~= "queued" or t[2] ~= attempt then return 0 end
intact_run(home, run, name)
send(home, run, name, key, attempt, now())
return 1
