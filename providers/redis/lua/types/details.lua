-- USES json
--
-- JSON list of four whole numbers.
local function details(given, slot)
  local found = list(json(given, slot), slot)
  if #found ~= 4 then wrong(slot, "four numbers") end
  for _, count in ipairs(found) do whole(count, slot) end
  return found
end
