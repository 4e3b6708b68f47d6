-- Remove the oldest checkpoints of a branch, or of the line of one of them, and the entries that nothing needs any more.
--
-- KEYS home
-- ARGV branch:text max_keep:int head:text
-- USES states
--
-- ``head`` is "" for the whole branch. What is removed, and what another line still stands on, is told in
-- `runner.providers.base.excess`, which does the same for the other providers.
-- Returns how many were removed.
local checkpoints = checkpoints_key(branch_key(home, branch))
local ids = redis.call("ZRANGE", checkpoints, 0, -1)
local every = {}
for _, id in ipairs(ids) do every[id] = checkpoint_of(home, id) or {number = "0", parent = ""} end
local line = ids
local first = 1
if head ~= "" then
  local reversed, members = {}, {}
  local at = head
  while every[at] and not members[at] do
    members[at] = true
    reversed[#reversed + 1] = at
    at = every[at].parent
  end
  line = {}
  for i = #reversed, 1, -1 do line[#line + 1] = reversed[i] end
  local shared = {}
  for id, one in pairs(every) do if not members[id] then shared[one.parent] = true end end
  for i, id in ipairs(line) do if shared[id] then first = i + 1 end end
end
local cut, kept = #line, 0
while kept < tonumber(max_keep) and cut > 0 do
  if is_whole(home, every[line[cut]]) then kept = kept + 1 end
  cut = cut - 1
end
if kept < tonumber(max_keep) then return 0 end
redis.call("SCARD", branches_key(home))
for i = first, cut do intact_chain(home, every[line[i]].number, cut - first + 1) end
local removed = 0
for i = first, cut do
  local id = line[i]
  redis.call("ZREM", checkpoints, id)
  redis.call("HDEL", lineage_key(home), id)
  let_go(home, every[id].number)
  removed = removed + 1
end
if redis.call("EXISTS", checkpoints) == 0 then redis.call("SREM", branches_key(home), branch) end
if redis.call("EXISTS", lineage_key(home)) == 0 then redis.call("DEL", counter_key(home)) end
return removed
