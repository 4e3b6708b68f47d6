-- Record the answer of a model, so that it is never paid again.
--
-- KEYS run task journal
-- ARGV name:text key:text token:int step:text value:text begun:text reserved:text reached:int agent:text model:text prompt_tokens:int completion_tokens:int details:text event:text
-- USES emit
--
-- As record_step, of which this is what calls need that nothing was replayed before, by the fewest commands.
-- details: "" or, of its tokens, those that account.lua names, as "1,2,3,4". event: "1" for one that the model answered.
-- Returns 1; or 0 if it is refused, of which nothing is said: record_step says it.
local t = redis.call("HMGET", task, "token", "started", "reached", "handed", "prompt_tokens", "completion_tokens")
local r = redis.call("HMGET", run, "id", "paid", "prompt_tokens", "completion_tokens", "events")
if t[1] ~= token or not r[1] then return 0 end
local field = cjson.encode({name, key, agent, model})
local line = redis.call("HGET", ledger_key(run), field)
local paid, between, prompt, completion, served =
  string.match(line or "[0,0,0,0,0,0]", "^%[(%d+),(%d+,%d+),(%d+),(%d+),(%d+)%]$")
if not paid then wrong("ledger", "six numbers") end
local more = details ~= "" and {string.match(details, "^(%d+),(%d+),(%d+),(%d+)$")}
if more and not more[1] then wrong("details", "four numbers") end
if event ~= "" then redis.call("XLEN", events_key(run)) end
local function also(list, field, value)
  list[#list + 1] = field
  list[#list + 1] = value
end
local is_first = not line or redis.call("HLEN", journal) == 0
if is_first or t[4] or (r[5] or 0) % 100 == 99 then needs_all() else needs("HSET", "XADD") end
local of_task = {"begun", begun, "reserved", reserved}
if redis.call("HSETNX", journal, step, value) == 1 then
  redis.call("HSET", ledger_key(run), field, string.format("[%.0f,%s,%.0f,%.0f,%s]",
             paid + 1, between, prompt + prompt_tokens, completion + completion_tokens, served))
  local of_run = {"paid", (r[2] or 0) + 1}
  if prompt_tokens ~= "0" then  -- no field says 0: a commit tells by it whether there were any
    also(of_run, "prompt_tokens", (r[3] or 0) + prompt_tokens)
    also(of_task, "prompt_tokens", (t[5] or 0) + prompt_tokens)
  end
  if completion_tokens ~= "0" then
    also(of_run, "completion_tokens", (r[4] or 0) + completion_tokens)
    also(of_task, "completion_tokens", (t[6] or 0) + completion_tokens)
  end
  local said
  if more then
    local DETAILS = {"cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens"}
    said = {"model", model, "agent", agent, "prompt_tokens", prompt_tokens, "completion_tokens", completion_tokens}
    local had = redis.call("HMGET", run, "tokens" .. field, unpack(DETAILS))
    local of = {string.match(had[1] or "", "^%[(%d+),(%d+),(%d+),(%d+)%]$")}
    for i, detail in ipairs(DETAILS) do
      of[i] = string.format("%.0f", (of[i] or 0) + more[i])
      if more[i] ~= "0" then
        also(of_run, detail, (had[i + 1] or 0) + more[i])
        also(said, detail, more[i])
      end
    end
    also(of_run, "tokens" .. field, "[" .. table.concat(of, ",") .. "]")
  end
  if event ~= "" then
    local seq, kind = (r[5] or 0) + 1, "llm_call_completed"
    if said then
      append(run, seq, kind, "branch", name, "task", key, "parent", t[2] or 0, unpack(said))
    else
      put(run, seq, in_short(kind), name, key, t[2] or 0, 0, 0, cjson.encode({model, agent, prompt_tokens, completion_tokens}))
    end
    also(of_run, "events", seq)
  end
  redis.call("HSET", run, unpack(of_run))
  if is_first then
    -- Begun after the run was over, they would outlive it.
    local ttl = redis.call("PTTL", run)
    for _, k in ipairs(ttl > 0 and {journal, ledger_key(run)} or {}) do redis.call("PEXPIRE", k, ttl) end
  end
end
if tonumber(reached) > tonumber(t[3] or 0) then
  also(of_task, "crashes", 0)
  also(of_task, "reached", reached)
  if t[4] then redis.call("HDEL", task, "handed") end
end
redis.call("HSET", task, unpack(of_task))
return 1
