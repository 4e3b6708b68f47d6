-- Look what the store still has of that which it acknowledged to one claim; what it forgot is told, and counted as in doubt.
--
-- KEYS home run task journal outputs
-- ARGV name:text key:text token:int ended:text steps:recorded recorded:int begun:entries? worker:text rewound:int later:text
-- USES now emit account intact
--
-- ended: the operation by which the claim was given up, or "". steps: those that were recorded, each with 1 if that worker's
-- later claim recorded it once more; recorded: how many it recorded in all, also those that are not remembered. later: the token of the last of those, or "".
-- begun: what was under way. rewound: 1 if the store is known to have forgotten something of this run.
-- Returns {"gone"} if there is no such run, {"kept"} (or counted before), {"unclear"} (a later claim has the task, or
-- committed it: before the store went back, or since), or {"forgotten", how many steps, 1 if the claim itself or its end
-- was forgotten, else 0}.
local counted_in = "rewound:" .. name .. "|" .. key .. "|" .. token
local r = redis.call("HMGET", run, "id", "token", counted_in, "rewound")
if not r[1] then return {"gone"} end
-- What was counted stands in the run, with the count: a store that goes back once more forgets both.
local counted = cjson.decode(r[3] or '{"steps":{}}')
local done = redis.call("HGET", outputs, key)
local by, of = string.match(done or "", '^{"seq":%d+,"token":(%d+),"of":"([%d:,]*)"')
by = by or string.match(done or "", '^{"seq":%d+,"token":(%d+)')
if by == token then return {"kept"} end
local at = now()
local t = redis.call("HMGET", task, "token", "begun", "claims")
local holds = t[1] == token
-- Whose the task was, oldest first, as far as that is kept, and how many steps each found. A claim that is not among them
-- was forgotten; and where the next one found fewer than there were after it, so were steps of it, whoever did them since.
local claims = done and (of == "" and by .. ":0," or of) or t[3] or ""
local own, following, first, last, kept
for one, found in string.gmatch(claims, "(%d+):(%d+),") do
  if own and not following then following = tonumber(found) end
  if one == token then own = tonumber(found) end
  first, last, kept = first or tonumber(one), one, (kept or 0) + 1
end
local unheard = first and not own and (kept < 16 or first < tonumber(token))
-- (A question takes the step out of the journal in which its answer will stand.)
local short = following and own + recorded - (ended == "ask" and 1 or 0) - following or 0
local fewer = short > 0
local whole = following and following >= own + recorded
local lost = unheard or ended == "commit" or (ended ~= "" and holds) or (ended == "" and tonumber(r[2] or 0) < tonumber(token))
  or (done and tonumber(by) < tonumber(token))  -- by an earlier claim: this one would never have been given
-- A later claim may have found what is there, or done it again; one that committed took the journal along. What else was
-- forgotten of the run lately, to this worker or to another one, says that the store went back: then it counts as done again.
local theirs = done and by or t[1] or last
local follows = theirs and tonumber(theirs) > tonumber(token)
local certain = lost or fewer or rewound == "1" or (r[4] and at - r[4] < 60000)
local found, many, open_questions = {}, 0, 0
for at_step, one in ipairs(steps) do
  local cut = fewer and at_step > #steps - short  -- what a store forgets is the newest
  if not whole and not counted.steps[one[1]] then
    local missing = not done and redis.call("HEXISTS", journal, one[1]) == 0
    if follows and not certain and not missing then
      open_questions = open_questions + 1
    elseif missing or unheard or cut or (done and not follows) or (follows and (theirs ~= later or one[3] == 1)) then
      many = many + 1
      counted.steps[one[1]] = true
      for _, entry in ipairs(one[2]) do found[#found + 1] = entry end
    end
  end
end
local pending = ended == "" and not holds and not counted.claim
if pending and not certain and begun then open_questions = open_questions + #begun end
-- What a claim that holds is to be counted by when it is taken back. What was under way at the time to which the store went
-- back, and recorded since, is counted already. And of what its process began last, the store may have forgotten the note.
-- (Where it has more records than are remembered, the memory was read before the last one.)
local under_way = {}
if holds then
  local which = {}
  for _, open in ipairs(noted(t[2]) or {}) do
    which[cjson.encode({open[1], open[2], open[3]})] = open
  end
  for _, one in ipairs(found) do
    local open = which[cjson.encode({one[1], one[2], one[3]})]
    if open then open[4] = math.max(open[4] - one[4], 0) end
  end
  if ended == "" and own and redis.call("HLEN", journal) <= own + recorded then
    for _, one in ipairs(begun or {}) do
      local id = cjson.encode({one[1], one[2], one[3]})
      if not which[id] or which[id][4] < one[4] then which[id] = one end
    end
  end
  for _, open in pairs(which) do
    if open[4] > 0 then under_way[#under_way + 1] = open end
  end
end
local function note_again()
  if holds then redis.call("HSET", task, "begun", #under_way > 0 and cjson.encode(under_way) or "") end
end
if many == 0 and (counted.claim or not (lost or (pending and certain))) then
  note_again()
  return {open_questions > 0 and "unclear" or "kept"}
end
intact_run(home, run, name)
account(run, name, key, "in_doubt", found)
if pending then account(run, name, key, "in_doubt", begun) end
note_again()
counted.claim = counted.claim or lost or pending
redis.call("HSET", run, counted_in, cjson.encode(counted), "rewound", string.format("%.0f", at))
emit(run, "store_rewound", "branch", name, "task", key, "token", token, "worker", worker,
     "forgotten", ended ~= "" and ended or (lost and "claim" or "steps"), "steps", many)
return {"forgotten", many, lost and 1 or 0}
