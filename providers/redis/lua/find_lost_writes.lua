-- Compare what the store has of one claim with what it acknowledged to it. What it lost is reported, and counted as in doubt.
--
-- KEYS home run task journal outputs
-- ARGV name:text key:text token:int ended:text steps:recorded recorded:int begun:entries? worker:text rewound:int still:int later:text
-- USES now queued emit account intact
--
-- ended: the operation by which the claim was given up, or "". steps: those that were recorded, each with 1 if that worker's
-- later claim recorded it once more; recorded: how many it recorded in all, also those that are not remembered. later: the token of the last of those, or "".
-- begun: what was under way. rewound: 1 if the store is known to have lost something of this run. still: 1 if nothing has
-- come to what the worker remembers of the claim since the last look at it.
-- Returns {"gone"} if there is no such run, {"kept"} (or counted before), {"unclear"} (a later claim has the task, or
-- committed it: before the store was restored, or since; or what was under way is not counted, and may just have ended),
-- {"counted"} (what was under way is counted now: its note never came, or was lost), or {"forgotten", how many steps, 1 if the
-- claim itself or its end was lost, else 0}.
local counted_in = "rewound:" .. name .. "|" .. key .. "|" .. token
local r = redis.call("HMGET", run, "id", "token", counted_in, "rewound", seen_to(name, key, token))
if not r[1] then return {"gone"} end
-- What was counted stands in the run, with the count: a store that is restored once more loses both.
local counted = cjson.decode(r[3] or '{"steps":{}}')
local done = redis.call("HGET", outputs, key)
local by = string.match(done or "", '^{"seq":%d+,"token":(%d+)')
local of = string.match(done or "", '^{"seq":%d+,"token":%d+,"of":"([%d:,]*)"')
if by == token then return {"kept"} end
local at = now()
local t = redis.call("HMGET", task, "token", "begun", "claims")
local holds = t[1] == token
-- The claims of the task, oldest first, as far as they are kept, and how many steps each found. A claim that is not among them
-- was lost; and where the next one found fewer than there were after it, so were steps of it, whichever claim did them since.
local claims = of == "" and by .. ":0," or of or t[3] or ""
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
-- A later claim may have found what is there, or done it again; one that committed removed the journal. If the store lately
-- lost anything else of the run, of this worker's or another's, it was restored: then these steps count as done again.
local theirs = by or t[1] or last
local follows = theirs and tonumber(theirs) > tonumber(token)
local certain = lost or fewer or rewound == "1" or (r[4] and at - r[4] < 60000)
-- Steps that count the same: which of them were forgotten does not matter, and how many the next claim has told.
local alike = following ~= nil
for _, one in ipairs(steps) do alike = alike and cjson.encode(one[2]) == cjson.encode(steps[1][2]) end
local found, many, open_questions = {}, 0, 0
for at_step, one in ipairs(steps) do
  local cut = at_step > #steps - short  -- what a store forgets is the newest
  if not whole and not counted.steps[one[1]] then
    local missing = not done and redis.call("HEXISTS", journal, one[1]) == 0
    if follows and not certain and not missing then
      open_questions = open_questions + 1
    elseif missing or unheard or cut or (done and not follows) or (follows and (one[3] == 1 or (theirs ~= later and not alike))) then
      many = many + 1
      counted.steps[one[1]] = true
      for _, entry in ipairs(one[2]) do found[#found + 1] = entry end
    end
  end
end
local function kind_of(one) return cjson.encode({one[1], one[2], one[3]}) end
-- How many steps were recorded under the claim without the process having heard so: it died before, or has not yet.
local there = following or (not done and redis.call("HLEN", journal))
local unheard_of = own and there and math.max(there - own - recorded, 0) or 0
-- What was under way under a claim that is given up was noted, and accounted for with that; or refused, and accounted for.
local broken_off = {}
if not holds then
  local seen = {}
  for _, one in ipairs(cjson.decode(r[5] or "[]")) do seen[kind_of(one)] = (seen[kind_of(one)] or 0) + one[4] end
  for _, one in ipairs(begun or {}) do
    local left = one[4] - (seen[kind_of(one)] or 0)
    local recorded_since = math.max(math.min(left, unheard_of), 0)
    unheard_of = unheard_of - recorded_since
    one[4] = left - recorded_since
    if one[4] > 0 then broken_off[#broken_off + 1] = one end
  end
end
if not certain and still ~= "1" then
  open_questions = open_questions + #broken_off
  broken_off = {}
end
-- What counts for a claim that holds, when it is taken back. What was under way at the time to which the store was
-- restored, and recorded since, is counted already. And the store may have lost the note of what its process began last.
-- (Where it has more records than are remembered, the memory was read before the last one.)
local function note_again()
  if not holds then return end
  local which, under_way = {}, {}
  for _, open in ipairs(noted(t[2]) or {}) do
    which[kind_of(open)] = open
  end
  for _, one in ipairs(found) do
    local open = which[kind_of(one)]
    if open then open[4] = math.max(open[4] - one[4], 0) end
  end
  for _, one in ipairs(own and unheard_of == 0 and begun or {}) do
    local open = which[kind_of(one)]
    if not open or open[4] < one[4] then which[kind_of(one)] = one end
  end
  for _, open in pairs(which) do
    if open[4] > 0 then under_way[#under_way + 1] = open end
  end
  redis.call("HSET", task, "begun", #under_way > 0 and cjson.encode(under_way) or "")
end
local news = many > 0 or (lost and not counted.claim) or (certain and #broken_off > 0)
if not news and #broken_off == 0 then
  note_again()
  return {open_questions > 0 and "unclear" or "kept"}
end
intact_run(home, run, name)
account(run, name, key, "in_doubt", found)
doubt(run, name, key, token, broken_off)
note_again()
if not news then return {"counted"} end
counted.claim = counted.claim or lost
redis.call("HSET", run, counted_in, cjson.encode(counted), "rewound", string.format("%.0f", at))
emit(run, "store_rewound", "branch", name, "task", key, "token", token, "worker", worker,
     "forgotten", ended ~= "" and ended or (lost and "claim" or "steps"), "steps", many)
return {"forgotten", many, lost and 1 or 0}
