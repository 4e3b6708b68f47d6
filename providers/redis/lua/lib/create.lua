-- A run begins: with its first frontier, or not at all. What all that begin in one script have in common is looked at, and
-- written, once.
local function intact_beginning(home, fields, ready)
  redis.call("ZCARD", runs_key(home))
  redis.call("ZCARD", active_key(home))
  intact_queue(home, fields.queue, nil, fields.envelope, ready)
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
local function is_usual(fields, unknown)
  return unknown and fields.bundle ~= "" and fields.envelope ~= "" and not asked_for(fields.checkpoint_on, "crew_kickoff_started")
end
-- many: how many runs of this bundle begin.
local function begin_bundle(bundle, fields, plan, many)
  if fields.bundle == "" then return end
  redis.call("HINCRBY", bundle, "active", many)
  redis.call("HSETNX", bundle, "plan:" .. fields.plan, plan)
  redis.call("PERSIST", bundle)
end
-- What runs add to a key that they share, in one command for all of them. More than 1,000 values would not go into one.
local function add_all(command, key, values)
  for i = 1, #values, 1000 do redis.call(command, key, unpack(values, i, math.min(i + 999, #values))) end
end
-- What the hash of a run holds, as fields and values, after what it has of its own. Each is searched for from the start, so
-- those come first that a claim and a commit look for.
local function fields_of_run(own, fields, ready, tasks_left, at)
  local flat, all = own, {status = "running", created_at = at, branch = "main", live = 1, protocol = PROTOCOL, tasks = tasks_left, events = 1}
  for field, value in pairs(fields) do all[field] = value end
  local function put(field, value)
    flat[#flat + 1] = field; flat[#flat + 1] = value
  end
  for _, field in ipairs({"bundle", "module", "attr", "adapter", "plan", "crew", "checkpoint_on", "max_checkpoints", "batch", "keep",
                          "branch", "live", "created_at", "protocol", "events"}) do
    if all[field] then put(field, all[field]) end
    all[field] = nil
  end
  -- Scripts of before would fill in an envelope: they put the job into the outbox instead.
  if all.envelope ~= "" then
    put("direct", "1"); put("sends", #ready)
    all.envelope = ""
  end
  for field, value in pairs(all) do put(field, value) end
  return flat
end
-- The keys of a run in which runs that begin in one script are the same, but for what own says.
local function begin_run(run, own, fields, ready, tasks_left, at)
  local branch = branch_key(run, "main")
  redis.call("HSET", run, unpack(fields_of_run(own, fields, ready, tasks_left, at)))
  local scope = append(run, 1, "crew_kickoff_started", "branch", "main")
  redis.call("HSET", branch, "status", "running", "seq", 0, "left", tasks_left, "scope", scope)
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
local function create(home, runs, fields, plan, ready, tasks_left, stamp, at)
  local watched = asked_for(fields.checkpoint_on, "crew_kickoff_started")
  local created, queued, outbox, queues, open, first = {}, {}, {}, {}, {}, nil
  for _, job in ipairs(ready) do open[#open + 1] = job.task end
  fields.inputs, fields.beginning = nil, nil
  for _, one in ipairs(runs) do
    local run, own = one.key, {"id", one.id}
    if one.inputs then own[3], own[4] = "inputs", one.inputs end
    if one.beginning then own[#own + 1] = "beginning"; own[#own + 1] = one.beginning end
    if first and one.unknown and #own == first.own then
      begin_like(first.key, run, own, ready)
    else
      local many = #own
      begin_run(run, own, fields, ready, tasks_left, at)
      if watched then checkpoint(run, "main", branch_key(run, "main"), "crew_kickoff_started", "", stamp, at) end
      -- When it ends it is not again: finish relies on this.
      if fields.batch then settle(run) end
      if one.unknown and not watched then first = first or {key = run, own = many} end
    end
    if fields.bundle == "" then redis.call("SET", plan_key(run), plan) end
    redis.call("SADD", branches_key(run), "main")
    add_all("SADD", open_key(branch_key(run, "main")), open)
    created[#created + 1] = at; created[#created + 1] = one.id
    local of = {one.id, nil, fields.queue, fields.crew}
    for i, job in ipairs(ready) do
      of[6] = i
      queued[#queued + 1] = at; queued[#queued + 1] = queued_ref(one.id, "main", job.task)
      if fields.envelope ~= "" then
        local message, queue = message_of("main", job.task, 1, job.pool or "", of)
        queues[queue] = queues[queue] or {}
        queues[queue][#queues[queue] + 1] = message
      else
        outbox[#outbox + 1] = at; outbox[#outbox + 1] = one.id .. "|main|" .. job.task .. "|1"
      end
    end
  end
  add_all("ZADD", runs_key(home), created)
  add_all("ZADD", active_key(home), created)
  add_all("ZADD", queued_key(home), queued)
  add_all("ZADD", outbox_key(home), outbox)
  for queue, messages in pairs(queues) do add_all("LPUSH", queue, messages) end
end
