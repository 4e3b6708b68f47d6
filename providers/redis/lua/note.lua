-- Put what a task logs, or how far it is, among the run's events.
--
-- KEYS run task
-- ARGV name:text key:text token:int kind:text text:text
-- USES emit
--
-- Returns 1, or 0 where the claim is lost.
local t = redis.call("HMGET", task, "token", "started")
if t[1] ~= token then return 0 end
redis.call("XLEN", events_key(run))
emit(run, kind, "branch", name, "task", key, "text", text, "parent", t[2] or 0)
return 1
