-- Record a step that was done, so that it is never done again.
--
-- KEYS run task journal
-- ARGV name key token step value replayed prompt_tokens completion_tokens
-- USES emit refuse
--
-- Returns {"recorded"} or {"refused"}.
local t = redis.call("HMGET", task, "token", "begun")
if t[1] ~= token then return refuse(run, name, key, token, "step") end
if redis.call("HSETNX", journal, step, value) == 1 then
  redis.call("HINCRBY", run, "paid", 1)
  -- A task that gets on is not the one that kills its workers.
  redis.call("HSET", task, "begun", math.max((t[2] or 0) - 1, 0), "crashes", 0)
  if redis.call("HLEN", journal) == 1 then
    -- Begun after the run was over, the journal would outlive it.
    local ttl = redis.call("PTTL", run)
    if ttl > 0 then redis.call("PEXPIRE", journal, ttl) end
  end
  for field, count in pairs({prompt_tokens = prompt_tokens, completion_tokens = completion_tokens}) do
    if count ~= "0" then
      redis.call("HINCRBY", run, field, count)
      redis.call("HINCRBY", task, field, count)
    end
  end
  if replayed ~= "0" then redis.call("HINCRBY", run, "replayed", replayed) end
end
return {"recorded"}
