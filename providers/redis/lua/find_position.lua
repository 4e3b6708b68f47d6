-- Read a position in a run's history, and what a fork from there depends on. Writes nothing.
--
-- KEYS run
-- ARGV name:text checkpoint:text tasks:texts
-- USES lost
--
-- name: a branch, "" for the run's current branch. checkpoint: the whole id of one, on any branch; "" for the
-- newest position. tasks: JSON list of those whose outputs are wanted.
-- Returns {"gone"}, {"no branch"} or {"no checkpoint"}; else {"there", run fields, plan, id of the newest event, sequence,
-- line, line, ...}: the branch, then its parent and so on, each as {name, its fields and their values, its commits up to
-- there, in order, the wanted outputs or false}. A commit of which the output is gone is none: its task is done again.
local r = redis.call("HMGET", run, "branch", "plan", "bundle", "queue", "inputs", #tasks > 0 and "shapes" or "")
if not r[1] then return {"gone"} end
local upto
if checkpoint ~= "" then
  local function at(branch)
    local found = redis.call("HGET", lineage_key(branch_key(run, branch)), checkpoint)
    if found then name, upto = branch, tonumber(string.match(found, "^%d+")) end
    return upto
  end
  if not at(r[1]) then
    for _, one in ipairs(redis.call("SMEMBERS", branches_key(run))) do if at(one) then break end end
  end
  if not upto then return {"no checkpoint"} end
end
if name == "" then name = r[1] end
local newest = redis.call("XREVRANGE", events_key(run), "+", "-", "COUNT", 1)[1]
local shared = r[3] and redis.call("HGET", bundle_key(string.match(run, "^[^}]*}"), r[3]), "plan:" .. r[2])
local found = {"there", r, redis.call("GET", plan_key(run)) or shared, newest and newest[1] or "0", 0}
while name do
  local branch = branch_key(run, name)
  local fields, own = redis.call("HGETALL", branch), {}
  if #fields == 0 then return {"no branch"} end
  for i = 1, #fields, 2 do own[fields[i]] = fields[i + 1] end
  upto = upto or tonumber(own.seq)
  if #found == 5 then found[5] = upto end
  local left = tonumber(own.parent_seq or "0")
  local outputs = {}
  for i, task in ipairs(tasks) do outputs[i] = redis.call("HGET", outputs_key(branch), task) end
  -- Sequences only go up: these are all that can be there, and a few more where some were edited.
  local commits = upto > left and redis.call("LRANGE", commit_log_key(branch), 0, upto - left - 1) or {}
  if outputs_gone(branch, commits_of(branch, own.done), own.edited) > 0 then
    local function is_there(task) return redis.call("HEXISTS", outputs_key(branch), task) == 1 end
    local whole = {}
    for _, entry in ipairs(commits) do
      if is_there(cjson.decode(entry)[2]) then whole[#whole + 1] = entry end
    end
    commits = whole
    for i = 1, #fields, 2 do
      if fields[i] == "edits" then
        local edits = cjson.decode(own.edits)
        for at, task in ipairs(edits) do edits[at] = is_there(task) and task or "" end
        fields[i + 1] = cjson.encode(edits)
      end
    end
  end
  found[#found + 1] = {name, fields, commits, outputs}
  name, upto = own.parent, math.min(upto, left)
end
return found
