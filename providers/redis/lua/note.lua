-- Append a task's log line, or its progress, to the run's events.
--
-- KEYS run task
-- ARGV name:text key:text token:int kind:text text:text nonce:text
-- USES emit
--
-- nonce: one per line, so that one whose answer was lost can be sent again.
-- Returns 1, or 0 where the claim is lost.
local t = redis.call("HMGET", task, "token", "started", "told")
if t[1] ~= token then return 0 end
if string.match(t[3] or "", "^%S+") == nonce then return 1 end
redis.call("XLEN", events_key(run))
needs("XADD", "HGET", "XTRIM", "HSET")
local seq = emit(run, kind, "branch", name, "task", key, "text", text, "parent", t[2] or 0)
redis.call("HSET", task, "told", nonce .. " " .. seq)
return 1
