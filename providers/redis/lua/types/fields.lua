-- USES json int
--
-- JSON object of the fields of a hash: texts, or whole numbers. Those that scripts count with are numbers.
local NUMBERS = {keep = true, max_checkpoints = true, seq = true, parent_seq = true}
local function fields_of(given, slot)
  local found, many = object(json(given, slot), slot), 0
  for field, value in pairs(found) do
    many = many + 1
    if type(value) ~= "number" then text(value, slot) else whole(value, slot) end
    if NUMBERS[field] then int(string.format("%s", value), slot .. "." .. field) end
  end
  if many > 1000 then wrong(slot, "an object of 1000 fields at most") end
  return found
end
local function fields(given, slot) return fields_of(given, slot) end
