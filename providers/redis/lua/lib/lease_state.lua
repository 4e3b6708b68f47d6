-- A run in flight stands on a checkpoint, for as long as a lease in milliseconds.
local function lease_state(home, id, lease)
  redis.call("ZADD", held_key(home), now() + tonumber(lease), id)
  redis.call("PEXPIRE", held_key(home), tonumber(lease))
end
