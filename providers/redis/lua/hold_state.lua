-- Protect the checkpoint that a run in flight stands on from pruning, for as long as a lease, and release the one before.
--
-- KEYS home
-- ARGV id:text instead_of:text lease:int
-- USES now lease_state
--
-- ``id`` is "" where the run is over, ``instead_of`` is "" where there was none before. Returns nothing.
local held = held_key(home)
redis.call("ZREM", held, instead_of)
if id ~= "" then lease_state(home, id, lease) end
redis.call("ZREMRANGEBYSCORE", held, "-inf", now())
return nil
