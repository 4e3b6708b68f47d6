-- USES int
--
-- An event's sequence, 0 for none; or the place among those that are told together of one that has none yet: -1 for the
-- first. Each stands after the one that it names.
local function event(text, slot)
  if string.sub(text, 1, 1) == "-" then int(string.sub(text, 2), slot) else int(text, slot) end
  return text
end
