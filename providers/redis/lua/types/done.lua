-- USES texts
--
-- JSON list of texts, three for each step.
local function done(given, slot)
  local found = texts(given, slot)
  if #found % 3 ~= 0 then wrong(slot, "three texts for each step") end
  return found
end
