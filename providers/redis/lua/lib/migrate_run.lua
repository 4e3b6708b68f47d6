-- A run of an older protocol that we write to is of ours from here on. What is queued is sent again, to the queue that
-- workers of our protocol serve: to those of older versions, which have the old messages, it is another attempt's, and not theirs.
-- but: the task that is being claimed, on its branch.
local function migrate_run(home, run, at, branch_but, but)
  local r = redis.call("HMGET", run, "protocol", "queue", "envelope", "direct")
  if tonumber(r[1] or "1") >= PROTOCOL then return end
  local queue = "runner:p" .. PROTOCOL .. ":" .. string.gsub(r[2], "^runner:p%d+:", "")
  local waiting = {}
  for _, name in ipairs(redis.call("SMEMBERS", branches_key(run))) do
    for _, task in ipairs(is_active(run, name) and redis.call("SMEMBERS", open_key(branch_key(run, name))) or {}) do
      local record = task_key(branch_key(run, name), task)
      if redis.call("HGET", record, "state") == "queued" and not (name == branch_but and task == but) then
        waiting[#waiting + 1] = {name, task, record}
      end
    end
  end
  intact_queues(queue)
  redis.call("ZCARD", outbox_key(home))
  redis.call("HSET", run, "protocol", PROTOCOL, "queue", queue, "envelope", "")
  if is_direct(r[4], r[3]) then redis.call("HSET", run, "direct", 1) end
  for _, one in ipairs(waiting) do send(home, run, one[1], one[2], redis.call("HINCRBY", one[3], "attempt", 1), at) end
end
