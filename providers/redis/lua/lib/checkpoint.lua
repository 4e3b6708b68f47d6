-- Write a checkpoint of the branch, if the run asked for one at this event. Retention: only the newest max_checkpoints stay.
--
-- Whether a run asked for one. on: the run's triggers, with commas around.
local function asked_for(on, trigger)
  -- As most do: two searches less.
  if on == ",task_completed," then return trigger == "task_completed" end
  return on and (string.find(on, ",*,", 1, true) or string.find(on, "," .. trigger .. ",", 1, true))
end
-- Write one. on, max_checkpoints: the run's, 0 for all. Returns its id: the branch's head from now on.
local function put_checkpoint(id, name, branch, on, max_checkpoints, seq, parent, trigger, task, stamp, at)
  local number = string.format("%d", seq)
  local checkpoint_id = stamp .. "_" .. string.sub(redis.sha1hex(id .. "|" .. name .. "|" .. number), 1, 8)
  local by = trigger == "task_completed" and "" or trigger
  redis.call("ZADD", checkpoints_key(branch), number, checkpoint_id)
  redis.call("HSET", lineage_key(branch), checkpoint_id, number .. "|" .. string.format("%d", at) .. "|" .. parent .. "|" .. by .. "|" .. task)
  local excess = tonumber(max_checkpoints) > 0 and redis.call("ZCARD", checkpoints_key(branch)) - max_checkpoints or 0
  if excess > 0 then
    local oldest = redis.call("ZRANGE", checkpoints_key(branch), 0, excess - 1)
    redis.call("ZREMRANGEBYRANK", checkpoints_key(branch), 0, excess - 1)
    for _, old in ipairs(oldest) do redis.call("HDEL", lineage_key(branch), old) end
    if within_tasks(on) then drop_journals(branch) end
  end
  return checkpoint_id
end
-- Both, where the caller has read neither the run nor the branch. Returns its sequence, if it was written.
local function checkpoint(run, name, branch, trigger, task, stamp, at)
  local r = redis.call("HMGET", run, "checkpoint_on", "max_checkpoints", "id")
  if not asked_for(r[1], trigger) then return end
  local b = redis.call("HMGET", branch, "seq", "head", "from")
  -- Every checkpoint has a sequence of its own, so that two at one commit have an order.
  local seq = string.format("%.0f", (b[1] or 0) + (trigger == "task_completed" and 0 or 1))
  local head = put_checkpoint(r[3], name, branch, r[1], r[2], seq, b[2] or b[3] or "", trigger, task, stamp, at)
  redis.call("HSET", branch, "seq", seq, "head", head)
  return seq
end
