-- USES texts
--
-- JSON list of fields and their values, in turn; so few of them that `unpack` has room for all.
local function flat(given, slot)
  local found = texts(given, slot)
  if #found % 2 ~= 0 or #found > 1000 then wrong(slot, "fields with values, 500 at most") end
  return found
end
