-- Remove the oldest checkpoints of a branch, but of no other run in flight, and the entries that nothing needs any more.
--
-- KEYS home
-- ARGV branch:text max_keep:int head:text
-- USES now states
--
-- ``head`` is "" for the whole branch. What is removed, and what is left alone, is told in
-- `runner.providers.base.excess`, which does the same for the other providers.
-- Returns how many were removed.
local checkpoints = checkpoints_key(branch_key(home, branch))
local ids = redis.call("ZRANGE", checkpoints, 0, -1)
local every = {}
for _, id in ipairs(ids) do every[id] = checkpoint_of(home, id) or {number = "0", parent = ""} end
local line = ids
if head ~= "" then
  if not every[head] then return 0 end
  local own, beside, after = {}, {}, {}
  local at = head
  while every[at] and not own[at] do
    own[at] = true
    at = every[at].parent
  end
  for _, other in ipairs(redis.call("ZRANGEBYSCORE", held_key(home), "(" .. now(), "+inf")) do
    at = other ~= head and other or ""
    after[at] = true
    while every[at] and not beside[at] do
      beside[at] = true
      at = every[at].parent
    end
  end
  for _, id in ipairs(ids) do
    if every[id].parent ~= "" and after[every[id].parent] and not own[id] then
      after[id] = true
      beside[id] = true
    end
  end
  line = {}
  for _, id in ipairs(ids) do if not beside[id] and id ~= head then line[#line + 1] = id end end
  line[#line + 1] = head
end
local cut, kept = #line, 0
while kept < tonumber(max_keep) and cut > 0 do
  if is_whole(home, every[line[cut]]) then kept = kept + 1 end
  cut = cut - 1
end
redis.call("SCARD", branches_key(home))
for i = 1, cut do intact_chain(home, every[line[i]].number, cut) end
local removed = 0
for i = 1, cut do
  local id = line[i]
  redis.call("ZREM", checkpoints, id)
  redis.call("HDEL", lineage_key(home), id)
  let_go(home, every[id].number)
  removed = removed + 1
end
if redis.call("EXISTS", checkpoints) == 0 then redis.call("SREM", branches_key(home), branch) end
if redis.call("EXISTS", lineage_key(home)) == 0 then redis.call("DEL", counter_key(home)) end
return removed
