-- Look what the store still has of that which it acknowledged to one claim; what it forgot is told, and counted as in doubt.
--
-- KEYS home run task journal outputs
-- ARGV name:text key:text token:int ended:text steps:recorded begun:entries? worker:text rewound:int
-- USES emit account intact
--
-- ended: the operation by which the claim was given up, or "". steps: those that were recorded.
-- begun: what was under way. rewound: 1 if the store is known to have forgotten something of this run.
-- Returns {"gone"} if there is no such run, {"kept"} (or counted before), {"unclear"} (the task was committed by another
-- claim, with which its journal went, or taken from this one: before the store went back, or since), or {"forgotten", how many steps, 1 if the claim itself or its end
-- was forgotten, else 0}.
local counted_in = "rewound:" .. name .. "|" .. key .. "|" .. token
local r = redis.call("HMGET", run, "id", "token", counted_in)
if not r[1] then return {"gone"} end
-- What was counted stands in the run, with the count: a store that goes back once more forgets both.
local counted = cjson.decode(r[3] or '{"steps":{}}')
local done = redis.call("HGET", outputs, key)
local by = done and string.match(done, '^{"seq":%d+,"token":(%d+)')
if by == token then return {"kept"} end
-- By a later claim, it may have been committed before the store went back, or since; by an earlier one, this claim would
-- never have been given.
if done and ended ~= "commit" and rewound ~= "1" and tonumber(by) > tonumber(token) then
  return {#steps > 0 and "unclear" or "kept"}
end
local t = redis.call("HMGET", task, "token", "begun")
local holds = t[1] == token
local found, doubtful, many = {}, {}, 0
for _, one in ipairs(steps) do
  if not counted.steps[one[1]] and (done or redis.call("HEXISTS", journal, one[1]) == 0) then
    many = many + 1
    counted.steps[one[1]] = true
    for _, entry in ipairs(one[2]) do found[#found + 1] = entry end
  end
end
local lost = ended == "commit" or (ended ~= "" and holds) or (ended == "" and tonumber(r[2] or 0) < tonumber(token))
local pending = ended == "" and not holds and not counted.claim
if many == 0 and (counted.claim or not (lost or (pending and rewound == "1"))) then
  return {(pending and begun and #begun > 0 and rewound ~= "1") and "unclear" or "kept"}
end
local left = holds and noted(t[2]) or {}
intact_run(home, run, name)
account(run, name, key, "in_doubt", found)
if pending then
  account(run, name, key, "in_doubt", begun)
elseif holds then
  -- What was under way at the time to which the store went back, and recorded since, is counted already.
  for _, one in ipairs(found) do
    for _, open in ipairs(left) do
      if open[1] == one[1] and open[2] == one[2] and open[3] == one[3] then open[4] = math.max(open[4] - one[4], 0) end
    end
  end
  for _, open in ipairs(left) do
    if open[4] > 0 then doubtful[#doubtful + 1] = open end
  end
  redis.call("HSET", task, "begun", #doubtful > 0 and cjson.encode(doubtful) or "")
end
counted.claim = counted.claim or lost or pending
redis.call("HSET", run, counted_in, cjson.encode(counted))
emit(run, "store_rewound", "branch", name, "task", key, "token", token, "worker", worker,
     "forgotten", ended ~= "" and ended or (lost and "claim" or "steps"), "steps", many)
return {"forgotten", many, lost and 1 or 0}
