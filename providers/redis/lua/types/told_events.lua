-- USES json event flat
--
-- JSON list of events: {type, task, JSON of further fields and their values, parent, started, cause, ends}.
local function told_events(given, slot)
  local found = list(json(given, slot), slot)
  for _, one in ipairs(found) do
    list(one, slot)
    for i = 1, 7 do text(one[i], slot) end
    for i = 4, 6 do event(one[i], slot) end
    one[3] = flat(one[3], slot)
  end
  return found
end
