-- Put what a task logs, or how far it is, among the run's events.
--
-- KEYS run task
-- ARGV name key token kind text
-- USES emit
--
-- Returns 1, or 0 where the claim is lost.
if redis.call("HGET", task, "token") ~= token then return 0 end
emit(run, kind, "branch", name, "task", key, "text", text)
return 1
