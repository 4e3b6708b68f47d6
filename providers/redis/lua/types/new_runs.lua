-- USES json
--
-- JSON list of runs to create: {id, number, inputs: JSON, and for a plan that grows its beginning}.
local function new_runs(given, slot)
  local found = list(json(given, slot), slot)
  for _, run in ipairs(found) do
    object(run, slot)
    text(run.id, slot)
    whole(run.number, slot)
    text(run.inputs, slot)
    if run.beginning then text(run.beginning, slot) end
  end
  return found
end
