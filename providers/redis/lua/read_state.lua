-- Read the entries of a checkpoint, from its own towards the one that stands alone, so many at a time.
--
-- KEYS home
-- ARGV id:text from:int? limit:int
-- USES states
--
-- ``from`` is the number of the entry to continue at, "" to begin; the answer ends when ``limit`` bytes are in it.
-- Returns {} if there is no such checkpoint, else {record, number of the next entry or "0", entry, entry, ...}. An entry
-- that should be there and is not comes as "".
local record = redis.call("HGET", lineage_key(home), id)
if not record then return {} end
local number = from
if number == "" then number = checkpoint_of(home, id).number end
local found = {record, number}
local size = 0
while number ~= "0" and size < tonumber(limit) do
  local entry = redis.call("HGET", entries_key(home), number) or ""
  found[#found + 1] = entry
  size = size + #entry + 16
  local _, base = chain_of(home, number)
  number = base or "0"
end
found[2] = number
return found
