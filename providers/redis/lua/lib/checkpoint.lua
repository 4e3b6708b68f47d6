-- Write a checkpoint of the branch, if the run asked for one at this event, and keep the newest max_checkpoints only.
local function checkpoint(run, name, branch, trigger, task, stamp, at)
  local r = redis.call("HMGET", run, "checkpoint_on", "max_checkpoints", "id")
  local on = r[1] or ""
  if on == "" or not (string.find(on, ",*,", 1, true) or string.find(on, "," .. trigger .. ",", 1, true)) then
    return
  end
  -- Every checkpoint has a sequence of its own, so that two at one commit have an order.
  local seq = redis.call("HGET", branch, "seq")
  if trigger ~= "task_completed" then seq = redis.call("HINCRBY", branch, "seq", 1) end
  local id = stamp .. "_" .. string.sub(redis.sha1hex(r[3] .. "|" .. name .. "|" .. seq), 1, 8)
  local before = redis.call("HMGET", branch, "head", "from")
  local parent = before[1] or before[2] or ""
  local checkpoints, lineage = checkpoints_key(branch), lineage_key(branch)
  redis.call("ZADD", checkpoints, seq, id)
  local by = trigger == "task_completed" and "" or trigger
  redis.call("HSET", lineage, id, seq .. "|" .. at .. "|" .. parent .. "|" .. by .. "|" .. task)
  redis.call("HSET", branch, "head", id)
  local excess = redis.call("ZCARD", checkpoints) - tonumber(r[2])
  if tonumber(r[2]) > 0 and excess > 0 then
    local oldest = redis.call("ZRANGE", checkpoints, 0, excess - 1)
    redis.call("ZREMRANGEBYRANK", checkpoints, 0, excess - 1)
    for _, old in ipairs(oldest) do redis.call("HDEL", lineage, old) end
  end
end
