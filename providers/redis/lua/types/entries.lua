-- USES json
--
-- Entries of the account: JSON list of {kind, agent, model, and numbers}.
local function entries_of(value, slot)
  for _, one in ipairs(list(value, slot)) do
    list(one, slot)
    for i = 1, 3 do text(one[i], slot) end
    for i = 4, math.max(5, #one) do whole(one[i], slot) end
  end
  return value
end
local function entries(given, slot) return entries_of(json(given, slot), slot) end
