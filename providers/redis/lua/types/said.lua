-- USES json entries
--
-- JSON object: by process, a token and, after a blank, JSON of entries of the account.
local function said(given, slot)
  local found = object(json(given, slot), slot)
  for _, one in pairs(found) do
    local out = string.match(text(one, slot), "^%d+ (.*)$")
    if out then entries(out, slot) end
  end
  return found
end
