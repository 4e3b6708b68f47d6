-- Record a step's result, so that it is never done again.
--
-- KEYS run task journal
-- ARGV name:text key:text token:int step:text value:text begun:text reserved:text paid:entries? replayed:entries? reached:int prompt_tokens:int completion_tokens:int details:details? event:flat?
-- USES emit refuse account
--
-- begun: the steps still in progress. reserved: which of them is the one that comes next ("1": a step of the author's own,
-- else its kind, agent and model as JSON): it may begin without another command, or never. paid: what this one is counted as in the account; "" where the steps inside of it are.
-- reached: how many records its attempt has replayed and made so far, with this one.
-- details: of these tokens those that account.lua names, if there are any.
-- event: "" or, for one that a model answered, its fields as a flat JSON list.
-- Returns {"recorded"} or {"refused"}.
local t = redis.call("HMGET", task, "token", "started", "reached", "handed", "prompt_tokens", "completion_tokens")
if t[1] ~= token then return refuse(run, name, key, token, "step") end
if event then redis.call("XLEN", events_key(run)) end
if paid or replayed then redis.call("HLEN", ledger_key(run)) end
if redis.call("HLEN", run) == 0 then return refuse(run, name, key, token, "step") end
local first = redis.call("HSETNX", journal, step, value) == 1
local new = {"begun", begun, "reserved", reserved}
local function put(field, value)
  new[#new + 1] = field
  new[#new + 1] = value
end
-- A task that makes progress is not the one that kills its workers. One that records as much as before, but other things each
-- time (a prompt with a clock in it), makes none.
if tonumber(reached) > tonumber(t[3] or 0) then
  put("crashes", 0)
  put("reached", reached)
  if t[4] then redis.call("HDEL", task, "handed") end
end
if first then
  account(run, name, key, "paid", paid, prompt_tokens, completion_tokens, details)
  account(run, name, key, "replayed", replayed)
  if redis.call("HLEN", journal) == 1 then
    -- Begun after the run was over, the journal would outlive it.
    local ttl = redis.call("PTTL", run)
    if ttl > 0 then redis.call("PEXPIRE", journal, ttl) end
  end
  for i, field in ipairs({"prompt_tokens", "completion_tokens"}) do
    local count = i == 1 and prompt_tokens or completion_tokens
    if count ~= "0" then
      redis.call("HINCRBY", run, field, count)
      put(field, string.format("%.0f", (t[4 + i] or 0) + count))
    end
  end
  if event then
    emit(run, "llm_call_completed", "branch", name, "task", key, "parent", t[2] or 0, unpack(event))
  end
end
redis.call("HSET", task, unpack(new))
return {"recorded"}
