-- Redeliver jobs that are not claimed although nothing is left in their queue: their messages are lost.
-- A needless copy is discarded at the claim. A job whose queue is not empty is checked again after as long, so that
-- a queue without workers does not keep the others from being checked.
--
-- KEYS home queued
-- ARGV older_ms:int limit:int depths:depths
-- USES now queued emit send is_active intact try
--
-- depths: how many messages wait in the queues of another broker, which this script cannot see: jobs of a queue that
-- is missing there are left as they are.
-- Returns {how many, the queues that have to be asked for, 1 if a key that holds another type kept it from sending some}.
local at = now()
local refs = redis.call("ZRANGEBYSCORE", queued, "-inf", at - older_ms, "LIMIT", 0, limit)
local sent, here, long = 0, {}, {}
local unknown, unseen = {}, {}
-- The jobs of a run that are in flight, by their names in the index: read where those are digests.
local function jobs_of(run_id)
  local found, run = {}, run_key(home, run_id)
  for _, name in ipairs(asked("SMEMBERS", branches_key(run))) do
    for _, key in ipairs(asked("SMEMBERS", open_key(branch_key(run, name)))) do
      found[queued_ref(run_id, name, key)] = {name, key}
    end
  end
  return found
end
for _, ref in ipairs(refs) do
  local run_id, name, key = string.match(ref, "^([^|]*)|([^|]*)|(.*)$")
  if name == "#" then
    long[run_id] = long[run_id] or jobs_of(run_id)
    name, key = unpack(long[run_id][ref] or {name, key})
  end
  local run = run_key(home, run_id)
  local r = asked("HMGET", run, "queue", "direct", "envelope")
  local t = asked("HMGET", task_key(branch_key(run, name), key), "state", "attempt", "pool")
  local _, going = pcall(is_active, run, name)
  if t[1] ~= "queued" or not going then
    redis.call("ZREM", queued, ref)
  elseif not try(intact_run, home, run, name) then
    redis.call("ZADD", queued, at, ref)  -- it does not hold up the jobs of others
  else
    local queue, relayed = queue_for(r[1], t[3]), not is_direct(r[2], r[3])
    -- As it was before this script sent anything: all that was lost with a queue is sent again at once.
    local waiting = relayed and depths or here  -- two brokers may have a queue of one name
    if not waiting[queue] and not relayed then waiting[queue] = redis.call("LLEN", queue) end
    if not waiting[queue] then
      if not unseen[queue] then unknown[#unknown + 1] = queue end
      unseen[queue] = true
    elseif waiting[queue] == 0 then
      send(home, run, name, key, t[2], at)
      if relayed then
        -- Another broker's consumers may hold it already: each copy that was not needed doubles the time to the next.
        local copies = redis.call("HINCRBY", task_key(branch_key(run, name), key), "copies", 1)
        redis.call("ZADD", queued, at + older_ms * (2 ^ math.min(copies, 8) - 1), ref)
      end
      emit(run, "job_resent", "branch", name, "task", key, "attempt", t[2])
      sent = sent + 1
    else
      redis.call("ZADD", queued, at, ref)
    end
  end
end
return {sent, unknown, overwritten}
