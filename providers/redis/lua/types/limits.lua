-- USES json
--
-- JSON list of {whose calls, how many}.
local function limits(given, slot)
  local found = list(json(given, slot), slot)
  for _, limit in ipairs(found) do
    text(list(limit, slot)[1], slot)
    whole(limit[2], slot)
  end
  return found
end
