-- USES wrong
--
-- What the JSON types are made of: JSON, and looks at its values. One look that fails refuses the call.
local function json(text, slot)
  local _, value = pcall(cjson.decode, text)
  if type(value) ~= "table" then wrong(slot, "JSON") end
  return value
end
local function list(value, slot)
  if type(value) ~= "table" or (#value == 0 and next(value) ~= nil) then wrong(slot, "a list") end
  return value
end
local function object(value, slot)
  if type(value) ~= "table" or #value > 0 then wrong(slot, "an object") end
  return value
end
local function text(value, slot)
  if type(value) ~= "string" then wrong(slot, "made of texts") end
  return value
end
local function whole(value, slot)
  if type(value) ~= "number" or value < 0 or value >= 1e15 or value ~= math.floor(value) then wrong(slot, "made of whole numbers") end
  return value
end
