-- USES json
--
-- JSON object of texts, by text.
local function map_of_texts(value, slot)
  for _, one in pairs(object(value, slot)) do text(one, slot) end
  return value
end
local function map(given, slot) return map_of_texts(json(given, slot), slot) end
