-- USES json
--
-- JSON list of lists of two texts.
local function two_texts(list_of_two, slot)
  for _, one in ipairs(list(list_of_two, slot)) do
    text(list(one, slot)[1], slot)
    text(one[2], slot)
  end
end
local function pairs_of_texts(given, slot)
  local found = json(given, slot)
  two_texts(found, slot)
  return found
end
