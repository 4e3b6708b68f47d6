-- Stop a run: claims are taken back, so nothing more of it is written, and their workers are told to look.
--
-- KEYS home run
-- ARGV reason
-- USES now emit send goes_on release recall lifetime finish
--
-- Returns the run's status before: only "running" and "waiting" are cancelled by it.
local was = redis.call("HGET", run, "status")
if was ~= "running" and was ~= "waiting" then return was or "gone" end
local at = now()
recall(home, run)
emit(run, "run_cancelled", "reason", reason)
finish(home, run, "cancelled", reason, at)
return was
