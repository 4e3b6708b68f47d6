-- USES json
--
-- JSON list of {task, met: how many of those it waits for are committed}.
local function waits(given, slot)
  local found = list(json(given, slot), slot)
  for _, wait in ipairs(found) do
    text(object(wait, slot).task, slot)
    whole(wait.met, slot)
  end
  return found
end
