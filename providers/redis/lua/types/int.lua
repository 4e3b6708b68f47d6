-- USES wrong
--
-- A whole number from 0, as text: of 15 digits at most, Lua has it exactly, and a sum with the time in ms overflows nowhere.
local function int(text, slot)
  if #text > 15 or not string.find(text, "^%d+$") then wrong(slot, "a whole number") end
  return text
end
