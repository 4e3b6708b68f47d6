-- USES json
--
-- JSON list of texts.
local function texts(given, slot)
  local found = list(json(given, slot), slot)
  for _, one in ipairs(found) do text(one, slot) end
  return found
end
