-- USES fields
--
-- The fields of a new run: with all that the scripts count on.
local function run_fields(given, slot)
  local found = fields_of(given, slot)
  for _, field in ipairs({"keep", "max_checkpoints", "bundle", "queue", "crew", "envelope", "plan"}) do text(found[field], slot .. "." .. field) end
  return found
end
