-- Checkpoints of states, and the entries that they are made of. An entry is held by its checkpoint, and by each entry
-- that stands on it; who holds it, and on which it stands, is one short text: small hashes of those are packed by Redis.
local function bucket(number) return math.floor(number / 100) end
local function checkpoint_of(home, id)
  local text = redis.call("HGET", lineage_key(home), id)
  if not text then return nil end
  local number, digest, size, bytes, parent, branch = string.match(text, "^(%d+)|(%x+)|(%d+)|(%d+)|([^|]*)|(.*)$")
  return {number = number, digest = digest, size = size, bytes = tonumber(bytes), parent = parent, branch = branch}
end
local function chain_of(home, number)
  local text = redis.call("HGET", chains_key(home, bucket(number)), number)
  if not text then return nil end
  local holders, base = string.match(text, "^(%d+) (%d+)$")
  return tonumber(holders), base
end
local function hold_entry(home, number)
  local holders, base = chain_of(home, number)
  if not holders then return false end
  redis.call("HSET", chains_key(home, bucket(number)), number, (holders + 1) .. " " .. base)
  return true
end
-- Before the first write: that the entries which this may let go, with so many others, are what they should be.
local function intact_chain(home, number, others)
  redis.call("HLEN", entries_key(home))
  while number ~= "0" do
    local holders, base = chain_of(home, number)
    if not holders or holders > others then return end
    number = base
  end
end
local function let_go(home, number)
  while number ~= "0" do
    local holders, base = chain_of(home, number)
    if not holders then return end
    local chains = chains_key(home, bucket(number))
    if holders > 1 then
      redis.call("HSET", chains, number, (holders - 1) .. " " .. base)
      return
    end
    redis.call("HDEL", chains, number)
    redis.call("HDEL", entries_key(home), number)
    number = base
  end
end
local function is_whole(home, one)
  return one ~= nil and redis.call("HSTRLEN", entries_key(home), one.number) == one.bytes
end
