-- Append an event that a task's code emitted to the run's: its type and place, not its content.
--
-- KEYS run branch task
-- ARGV name:text key:text token:int kind:text about:text more:flat parent:event started:event cause:event ends:text trigger:text steps:texts? stamp:text nonce:text before:told_events?
-- USES now queued emit is_active journals checkpoint intact
--
-- about: the task to say. more: JSON list of further fields and their values. ends: "" or, if it opens a scope, the type
-- that ends that when the task is interrupted. trigger: "" or the checkpoint trigger that it is; steps: JSON list of those
-- recorded that no checkpoint may have yet.
-- nonce: one per call, so that what was told can be sent again if the answer was lost.
-- before: "" or those that were told before it, with the same fields.
-- Returns the sequence of the first of them, which all others follow at once, or 0 where the claim is lost.
local t = redis.call("HMGET", task, "token", "open", "started", "told")
if t[1] ~= token then return 0 end
local told, as = string.match(t[4] or "", "^(%S+) (%d+)$")
if told == nonce then return tonumber(as) end
redis.call("XLEN", events_key(run))
if trigger == "" then needs("XADD", "HGET", "XTRIM", "HSET", "HDEL") else needs_all() end
redis.call("HLEN", branch)
if trigger ~= "" then intact_branch(branch) end
if steps then redis.call("ZCARD", steps_key(branch, key)) end
local all, open, first = before or {}, t[2] and cjson.decode(t[2])
all[#all + 1] = {kind, about, more, parent, started, cause, ends}
local function sequence(of)
  local place = string.match(of, "^-(%d+)$")
  return place and string.format("%.0f", first + place - 1) or of
end
for _, one in ipairs(all) do
  local of, under, ended = one[2], sequence(one[4]), sequence(one[5])
  if under == "0" then under = t[3] or "0" end
  local seq = emit(run, one[1], "branch", name, "task", of, "parent", under, "started", ended, "cause", sequence(one[6]),
                   unpack(one[3]))
  first = first or seq
  if one[7] ~= "" or (ended ~= "0" and open) then
    local left = {}
    for _, other in ipairs(open or {}) do
      if tostring(other[1]) ~= ended then left[#left + 1] = other end
    end
    if one[7] ~= "" then left[#left + 1] = {seq, tonumber(under), one[7], of} end
    open = left
  end
end
redis.call("HSET", task, "told", nonce .. " " .. first)
if open and #open > 0 then
  redis.call("HSET", task, "open", cjson.encode(open))
elseif open then
  redis.call("HDEL", task, "open")
end
local at = trigger ~= "" and is_active(run, name) and checkpoint(run, name, branch, trigger, key, stamp, now())
if at and steps then
  number_steps(branch, key, steps, at, redis.call("HGET", run, "keep"))
  redis.call("HSET", task, "numbered", 1)
end
return first
