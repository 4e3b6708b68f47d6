-- USES json
--
-- JSON object: by queue, how many messages wait there.
local function depths(given, slot)
  local found = object(json(given, slot), slot)
  for _, one in pairs(found) do whole(one, slot) end
  return found
end
