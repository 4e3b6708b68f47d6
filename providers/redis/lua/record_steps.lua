-- Record several steps of a task, so that none is done again, and note which are being done from here on.
--
-- KEYS run task journal
-- ARGV name:text key:text token:int kinds:text calls:entries? begun:text replayed:entries? reached:int steps:rest
-- USES emit refuse account
--
-- steps: of each its name and its result. kinds: a figure for each, 1 if it counts as paid, 0 where others stand for it, 2 for
-- what the next of the calls says: a line of the account, then its tokens, asked and answered, 1 for an event that a model answered, and
-- those of its tokens that account.lua names, if there are any. begun: the steps that are being done, or begin with this.
-- reached: how many records its attempt has replayed and made so far, with these.
-- Returns {"recorded"} or {"refused"}.
local t = redis.call("HMGET", task, "token", "reached", "started", "prompt_tokens", "completion_tokens", "handed")
if t[1] ~= token then return refuse(run, name, key, token, "step") end
if replayed or calls then redis.call("HLEN", ledger_key(run)) end
if calls then redis.call("XLEN", events_key(run)) end
if redis.call("HLEN", run) == 0 then return refuse(run, name, key, token, "step") end
local had, names, many, first, paid, made, of_call = redis.call("HLEN", journal), {}, #kinds, false, 0, {}, {}
if #ARGV ~= steps + 2 * many or string.find(kinds, "[^012]") then wrong("steps", "a name and a result for each kind") end
for i = 1, many do names[i] = ARGV[steps + 2 * i - 1] end
for at in string.gmatch(kinds, "()2") do of_call[at] = table.remove(calls or {}, 1) or wrong("calls", "as many as the steps say") end
if had == 0 or calls or replayed or t[6] then needs_all() else needs("HINCRBY", "HMGET", "HSET") end
if tonumber(reached) > tonumber(t[2] or 0) then
  redis.call("HSET", task, "begun", begun, "reserved", "", "crashes", 0, "reached", reached)
  if t[6] then redis.call("HDEL", task, "handed") end
else
  redis.call("HSET", task, "begun", begun, "reserved", "")
end
for from = 1, many, 1000 do  -- `unpack` has no room for many more
  local to = math.min(from + 999, many)
  local there, new, values, last = redis.call("HMGET", journal, unpack(names, from, to)), {}, nil, 0
  for i = 1, #there do
    local step = names[from + i - 1]
    if there[i] or new[step] then values = {} break end  -- it is not written again
    new[step] = true
  end
  if not values and not calls then  -- as mostly: all as they are given
    first = first or from == 1
    paid = paid + #string.gsub(string.sub(kinds, from, to), "[^1]", "")
    redis.call("HSET", journal, unpack(ARGV, steps + 2 * from - 1, steps + 2 * to))
  else
    new, values = {}, {}
    for i = 1, #there do
      local at = from + i - 1
      local step = names[at]
      if not there[i] and not new[step] then
        new[step], values[last + 1], values[last + 2], last = true, step, ARGV[steps + 2 * at], last + 2
        first = first or at == 1
        if string.byte(kinds, at) == 49 then paid = paid + 1 end  -- "1"
        if calls then made[#made + 1] = of_call[at] end
      end
    end
    if last > 0 then redis.call("HSET", journal, unpack(values)) end
  end
end
if paid > 0 then redis.call("HINCRBY", run, "paid", paid) end
if made[1] then
  local function number(count) return string.format("%.0f", count) end
  local tokens = {prompt = 0, completion = 0}
  for _, one in ipairs(made) do
    local _, agent, model, _, _, prompt, completion, event = unpack(one)
    local details = one[9] and {one[9], one[10], one[11], one[12]}
    account(run, name, key, "paid", {one}, prompt, completion, details)
    tokens.prompt, tokens.completion = tokens.prompt + prompt, tokens.completion + completion
    if event == 1 then
      local said = {"model", model, "agent", agent, "prompt_tokens", number(prompt), "completion_tokens", number(completion)}
      for i, count in ipairs(details or {}) do
        if count > 0 then
          said[#said + 1] = DETAILS[i]
          said[#said + 1] = number(count)
        end
      end
      emit(run, "llm_call_completed", "branch", name, "task", key, "parent", t[3] or 0, unpack(said))
    end
  end
  for i, kind in ipairs({"prompt", "completion"}) do
    if tokens[kind] > 0 then
      redis.call("HINCRBY", run, kind .. "_tokens", tokens[kind])
      redis.call("HSET", task, kind .. "_tokens", number((t[3 + i] or 0) + tokens[kind]))
    end
  end
end
if first then account(run, name, key, "replayed", replayed) end
if had == 0 then
  -- Begun after the run was over, the journal would outlive it.
  local ttl = redis.call("PTTL", run)
  if ttl > 0 then redis.call("PEXPIRE", journal, ttl) end
end
return {"recorded"}
