-- USES wrong
--
-- msgpack list of texts, three for each step.
local function steps_done(given, slot)
  local _, found = pcall(cmsgpack.unpack, given)
  if type(found) ~= "table" or #found % 3 ~= 0 or (#found == 0 and next(found) ~= nil) then wrong(slot, "three texts for each step") end
  for _, one in ipairs(found) do
    if type(one) ~= "string" then wrong(slot, "made of texts") end
  end
  return found
end
