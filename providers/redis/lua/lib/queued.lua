-- How the index of sent jobs names one. Redis packs a small index as long as no member is over 64 bytes; a longer name
-- would make it three times as big as all else that a fork adds.
local function queued_ref(id, name, key)
  local ref = id .. "|" .. name .. "|" .. key
  if #ref <= 64 then return ref end
  return id .. "|#|" .. string.sub(redis.sha1hex(name .. "|" .. key), 1, 20)
end
-- The queue of a task: those that mostly wait have one beside that of the others. See `runner.core.jobs.queue_for`.
local function queue_for(queue, pool)
  if pool ~= "thread" then return queue end
  return (string.gsub(queue, "^runner:p", "runner:t"))
end
