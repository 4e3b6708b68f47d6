-- USES json texts int
--
-- JSON list of tasks to do: {task, needs, context: a JSON list of texts, timeout: ms as text}.
local function tasks(given, slot)
  local found = list(json(given, slot), slot)
  for _, job in ipairs(found) do
    object(job, slot)
    text(job.task, slot)
    whole(job.needs, slot)
    if text(job.context, slot) ~= "[]" then texts(job.context, slot) end
    int(text(job.timeout, slot), slot)
  end
  return found
end
