-- Remove keys that hold what is of another type: they count as deleted. Each worker learns from its next heartbeat that the store
-- lost something, and looks for what it was told.
--
-- KEYS home
-- ARGV misfits:pairs_of_texts
-- USES lost
--
-- misfits: JSON list of {key, the type that it is to be of}.
-- Returns of each that was removed the key, the type that it was of, and the one that it is to be of.
local removed = {}
for _, one in ipairs(misfits) do
  local k, due = unpack(one)
  local have = redis.call("TYPE", k).ok
  if have ~= due and have ~= "none" then
    redis.call("DEL", k)
    for _, text in ipairs({k, have, due}) do removed[#removed + 1] = text end
  end
end
if #removed > 0 then tell_workers(home) end
return removed
