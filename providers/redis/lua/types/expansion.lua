-- USES json map pairs_of_texts
--
-- What a task adds to a plan that grows: JSON object of version, put, gone and notes.
local function expansion(given, slot)
  local found = object(json(given, slot), slot)
  text(found.version, slot)
  map_of_texts(found.put, slot)
  for _, one in ipairs(list(found.gone, slot)) do text(one, slot) end
  two_texts(found.notes, slot)
  return found
end
