-- Append an event that a task's code emitted to the run's: its type and place, not its content.
--
-- KEYS run branch task
-- ARGV name:text key:text token:int kind:text about:text more:flat parent:int started:int cause:int ends:text trigger:text steps:texts? stamp:text nonce:text
-- USES now queued emit goes_on journals checkpoint intact
--
-- about: the task to say. more: JSON list of further fields and their values. ends: "" or, if it opens a scope, the type
-- that ends that when the task is interrupted. trigger: "" or the checkpoint trigger that it is; steps: JSON list of those
-- recorded that no checkpoint may have yet.
-- nonce: one per event, so that one whose answer was lost can be sent again.
-- Returns its sequence, or 0 where the claim is lost.
local t = redis.call("HMGET", task, "token", "open", "started", "told")
if t[1] ~= token then return 0 end
local told, as = string.match(t[4] or "", "^(%S+) (%d+)$")
if told == nonce then return tonumber(as) end
if parent == "0" then parent = t[3] or 0 end
redis.call("XLEN", events_key(run))
redis.call("HLEN", branch)
if trigger ~= "" then intact_branch(branch) end
if steps then redis.call("ZCARD", steps_key(branch, key)) end
local seq = emit(run, kind, "branch", name, "task", about, "parent", parent, "started", started, "cause", cause,
                 unpack(more))
redis.call("HSET", task, "told", nonce .. " " .. seq)
if ends ~= "" or (started ~= "0" and t[2]) then
  local open, left = cjson.decode(t[2] or "[]"), {}
  for _, one in ipairs(open) do
    if tostring(one[1]) ~= started then left[#left + 1] = one end
  end
  if ends ~= "" then left[#left + 1] = {seq, tonumber(parent), ends, about} end
  if #left > 0 then redis.call("HSET", task, "open", cjson.encode(left)) else redis.call("HDEL", task, "open") end
end
local at = trigger ~= "" and goes_on(run, name) and checkpoint(run, name, branch, trigger, key, stamp, now())
if at and steps then
  number_steps(branch, key, steps, at, redis.call("HGET", run, "keep"))
  redis.call("HSET", task, "numbered", 1)
end
return seq
