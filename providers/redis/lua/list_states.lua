-- The checkpoints of one branch, or of all.
--
-- KEYS home
-- ARGV branch:text
-- USES states
--
-- ``branch`` is "" for all.
-- Returns {id, record, whole, ...}, branch by branch, oldest first; whole is 1 if its entry has its length.
local found = {}
local branches = {branch}
if branch == "" then branches = redis.call("SMEMBERS", branches_key(home)) end
for _, name in ipairs(branches) do
  for _, id in ipairs(redis.call("ZRANGE", checkpoints_key(branch_key(home, name)), 0, -1)) do
    found[#found + 1] = id
    found[#found + 1] = redis.call("HGET", lineage_key(home), id) or ""
    found[#found + 1] = is_whole(home, checkpoint_of(home, id)) and 1 or 0
  end
end
return found
