-- A run begins: with its first frontier, or not at all. What all that begin in one script have in common is looked at, and
-- written, once.
local function intact_beginning(home, queue, direct, ready)
  redis.call("ZCARD", runs_key(home))
  redis.call("ZCARD", active_key(home))
  intact_queue(home, queue, direct == "1", "", ready)
end
-- ARGV has the messages of ready from there on, where they are pushed here.
local function all_there(messages, direct, ready)
  if #ARGV ~= messages + (direct == "1" and #ready * MESSAGE_PARTS or 0) then wrong("what it was given", "complete") end
end
-- The keys that a run begins with.
local function first_keys(run, ready, keys)
  local branch = branch_key(run, "main")
  for _, key in ipairs({run, branches_key(run), events_key(run), branch, open_key(branch), checkpoints_key(branch), lineage_key(branch)}) do
    keys[#keys + 1] = key
  end
  for _, job in ipairs(ready) do keys[#keys + 1] = task_key(branch, job.task) end
  return keys
end
-- Whether none of these is there yet: then there is nothing to look at. More would not go into one command.
local function are_unknown(keys) return #keys <= 1000 and redis.call("EXISTS", unpack(keys)) == 0 end
local function is_unknown(run, ready) return are_unknown(first_keys(run, ready, {})) end
local function intact_new(run, ready)
  local branch = branch_key(run, "main")
  if redis.call("EXISTS", branches_key(run), events_key(run), branch, open_key(branch), checkpoints_key(branch), lineage_key(branch)) > 0 then
    redis.call("SCARD", branches_key(run))
    redis.call("XLEN", events_key(run))
    redis.call("HLEN", branch)
    intact_branch(branch)
  end
  intact_tasks(branch, ready)
end
-- Whether runs begin as most do, of which fewer commands are asked about.
local function is_usual(sha, direct, watched, unknown) return unknown and sha ~= "" and direct == "1" and not watched end
-- many: how many runs of this bundle begin.
local function begin_bundle(bundle, sha, digest, plan, many)
  if sha == "" then return end
  redis.call("HINCRBY", bundle, "active", many)
  redis.call("HSETNX", bundle, "plan:" .. digest, plan)
  redis.call("PERSIST", bundle)
end
-- What runs add to a key that they share, in one command for all of them. More than 1,000 values would not go into one.
local function add_all(command, key, values)
  for i = 1, #values, 1000 do redis.call(command, key, unpack(values, i, math.min(i + 999, #values))) end
end
-- The keys of a run in which runs that begin in one script are the same, but for what own says. Each field of the run is searched
-- for from the start: scripts.py gives first what a claim and a commit look for.
local function begin_run(run, own, fields, keep, max_checkpoints, ready, tasks_left, at)
  local branch = branch_key(run, "main")
  local all = {"id", own[2], "inputs", own[4], "max_checkpoints", max_checkpoints, "keep", keep, "created_at", at, unpack(fields)}
  for i = 5, #own do all[#all + 1] = own[i] end
  redis.call("HSET", run, unpack(all))
  put(run, 1, "crew_kickoff_started", "main", "", 0, 0, 0, "")
  redis.call("HSET", branch, "status", "running", "seq", 0, "left", tasks_left, "scope", 1)
  for _, job in ipairs(ready) do redis.call("HSET", task_key(branch, job.task), "attempt", 1, "state", "queued", unpack(planned(job))) end
end
-- Those of another run, which is unknown: a command for each has two arguments.
local function begin_like(first, run, own, ready)
  local from, branch = branch_key(first, "main"), branch_key(run, "main")
  redis.call("COPY", first, run)
  redis.call("HSET", run, unpack(own))
  redis.call("COPY", events_key(first), events_key(run))
  redis.call("COPY", from, branch)
  for _, job in ipairs(ready) do redis.call("COPY", task_key(from, job.task), task_key(branch, job.task)) end
end
-- Runs begin: each has a key, an id, inputs, and mostly no beginning. Those that are unknown are written as the first of them.
-- fields: what they have in common, as fields and values. messages: where ARGV has those of ready.
local function create(home, runs, sha, fields, keep, max_checkpoints, queue, direct, watched, batch, plan, ready, messages, tasks_left, stamp, at)
  local created, queued, outbox, queues, open, first = {}, {}, {}, {}, {}, nil
  for _, job in ipairs(ready) do open[#open + 1] = job.task end
  for _, one in ipairs(runs) do
    local run, own = one.key, {"id", one.id, "inputs", one.inputs}
    if one.beginning then own[5], own[6] = "beginning", one.beginning end
    if first and one.unknown and #own == first.own then
      begin_like(first.key, run, own, ready)
    else
      begin_run(run, own, fields, keep, max_checkpoints, ready, tasks_left, at)
      if watched then checkpoint(run, "main", branch_key(run, "main"), "crew_kickoff_started", "", stamp, at) end
      -- When it ends it is not again: finish relies on this.
      if batch then settle(run) end
      if one.unknown and not watched then first = first or {key = run, own = #own} end
    end
    if sha == "" then redis.call("SET", plan_key(run), plan) end
    redis.call("SADD", branches_key(run), "main")
    add_all("SADD", open_key(branch_key(run, "main")), open)
    created[#created + 1] = at; created[#created + 1] = one.id
    for i, job in ipairs(ready) do
      queued[#queued + 1] = at; queued[#queued + 1] = queued_ref(one.id, "main", job.task)
      if direct == "1" then
        local to = queue_for(queue, job.pool)
        queues[to] = queues[to] or {}
        queues[to][#queues[to] + 1] = table.concat(ARGV, one.id, messages + (i - 1) * MESSAGE_PARTS + 1, messages + i * MESSAGE_PARTS)
      else
        outbox[#outbox + 1] = at; outbox[#outbox + 1] = one.id .. "|main|" .. job.task .. "|1"
      end
    end
  end
  add_all("ZADD", runs_key(home), created)
  add_all("ZADD", active_key(home), created)
  add_all("ZADD", queued_key(home), queued)
  add_all("ZADD", outbox_key(home), outbox)
  for to, messages in pairs(queues) do add_all("LPUSH", to, messages) end
end
