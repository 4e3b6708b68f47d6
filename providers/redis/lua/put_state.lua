-- Store a checkpoint: its entry, its place on its branch, and its lineage. Sent twice, it is stored once.
--
-- KEYS home
-- ARGV id:text branch:text parent:text digest:text size:int entry:text base:int base_digest:text lease:int
-- USES now states lease_state
--
-- ``lease`` is 0, or how long a run in flight stands on it at first.
-- ``base`` is the number of the parent's entry, on which this one stands; 0 for one that stands alone.
-- Returns {"stored", number}, {"missing"} if the base is not what the writer thinks, {"taken"} if another has this id.
local found = checkpoint_of(home, id)
if found then
  if found.digest == digest then return {"stored", found.number} end
  return {"taken"}
end
redis.call("HLEN", entries_key(home))
redis.call("ZCARD", checkpoints_key(branch_key(home, branch)))
redis.call("SCARD", branches_key(home))
redis.call("ZCARD", held_key(home))
redis.call("HLEN", chains_key(home, bucket((redis.call("GET", counter_key(home)) or 0) + 1)))
if base ~= "0" then
  local above = checkpoint_of(home, parent)
  if not above or above.number ~= base or above.digest ~= base_digest then return {"missing"} end
  if not hold_entry(home, base) then return {"missing"} end
end
local number = redis.call("INCR", counter_key(home))
redis.call("HSET", entries_key(home), number, entry)
redis.call("HSET", chains_key(home, bucket(number)), number, "1 " .. base)
redis.call("HSET", lineage_key(home), id,
  number .. "|" .. digest .. "|" .. size .. "|" .. #entry .. "|" .. parent .. "|" .. branch)
redis.call("ZADD", checkpoints_key(branch_key(home, branch)), number, id)
redis.call("SADD", branches_key(home), branch)
if tonumber(lease) > 0 then lease_state(home, id, lease) end
return {"stored", tostring(number)}
