-- USES json entries
--
-- JSON list of {a step's name, entries of the account}.
local function recorded(given, slot)
  local found = list(json(given, slot), slot)
  for _, one in ipairs(found) do
    text(list(one, slot)[1], slot)
    entries_of(one[2], slot)
  end
  return found
end
