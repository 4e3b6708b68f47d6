-- USES json int
--
-- JSON list of tasks to do: {task, needs, context: JSON, which a claim reads, timeout: ms as text, pool: where it is done,
-- if not in a process of its own}.
local function tasks(given, slot)
  local found = list(json(given, slot), slot)
  for _, job in ipairs(found) do
    object(job, slot)
    text(job.task, slot)
    whole(job.needs, slot)
    text(job.context, slot)
    int(text(job.timeout, slot), slot)
    if job.pool ~= nil then text(job.pool, slot) end
  end
  return found
end
