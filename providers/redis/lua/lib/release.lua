-- Take a claim back and make the task runnable elsewhere: the next attempt has a new number, the journal stays.
-- A step that was begun and not recorded is in doubt: it may have been done, and will be done again.
-- handed_over: whether another worker continues where this one was stopped. out: nil, or the calls of models, and where a tool of 0 is
-- among them also the tools, that had left its process: one that was noted and never left is in no doubt. The fifth number of each
-- says of how many the note may be missing. And steps of which the note may be missing.
-- unused: whether no step was begun on the note that is reserved for the next, but for those that out has. Of what leaves, out
-- alone says it.
-- Returns what is in doubt, and all that was noted or begun.
local function doubtful(begun, out)
  if not out then return begun, begun end
  local said, found, known, leaves = {}, {}, {}, {model = true}
  for _, one in ipairs(out) do
    said[cjson.encode({one[1], one[2], one[3]})] = one
    if one[1] == "tool" and one[4] == 0 then leaves.tool = true end
  end
  local function add(kind, agent, model, many, noted)
    if many > 0 then found[#found + 1] = {kind, agent, model, many, 0} end
    known[#known + 1] = {kind, agent, model, noted, 0}
  end
  for _, one in ipairs(begun or {}) do
    local kind, agent, model, many = unpack(one)
    local which = cjson.encode({kind, agent, model})
    local of = said[which] or {kind, agent, model, 0, 0}
    local most = math.max(many, of[4])
    if leaves[kind] then
      local left = math.min(many + of[5], of[4])
      add(kind, agent, model, left, math.max(many, left))
    else
      add(kind, agent, model, most, most)
    end
    said[which] = nil
  end
  for _, one in pairs(said) do
    local many = leaves[one[1]] and math.min(one[4], one[5]) or one[4]
    if many > 0 then add(one[1], one[2], one[3], many, many) end
  end
  return found, known
end
local function give_up(home, run, name, task, worker, handed_over, out, unused)
  local record = task_key(branch_key(run, name), task)
  close_open(run, name, record, handed_over)
  local held = redis.call("HMGET", record, "token", "begun", "reserved")
  local but = unused and (not out or held[3] == "1") and held[3]
  local found, known = doubtful(noted(held[2], but), out)
  if out then
    local _, all = doubtful(noted(held[2]), out)
    known = all
  end
  doubt(run, name, task, held[1] or "", found, known)
  redis.call("HDEL", record, "token", "worker", "process", "nonce", "begun", "reserved", "copies")
  redis.call("HDEL", claims_key(home, worker), redis.call("HGET", run, "id") .. "|" .. name .. "|" .. task)
  return redis.call("HINCRBY", record, "attempt", 1)
end
local function requeue(home, run, name, task, attempt, at)
  local record = task_key(branch_key(run, name), task)
  if is_active(run, name) then
    redis.call("HSET", record, "state", "queued")
    send(home, run, name, task, attempt, at)
  else
    redis.call("HSET", record, "state", "held")
  end
end
