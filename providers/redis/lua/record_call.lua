-- Record the answer of a model, so that it is never paid again.
--
-- KEYS run
-- ARGV name:text key:text token:int step:text value:text begun:text reserved:text reached:int field:text prompt_tokens:int completion_tokens:int details:text kind:text rest:text
-- USES emit
--
-- As record_step, of which this is what calls need that nothing was replayed before, by the fewest commands; and nothing is
-- written that is so already. field: that of the ledger, as account.lua has it. details: "" or, of its tokens, those that
-- account.lua names, as "1,2,3,4". kind, rest: those of the entry in the stream that says that the model answered, as
-- stream.py has them; both "" for none.
-- Returns 1; or 0 if it is refused, of which nothing is said: record_step says it.
local call, branch = redis.call, branch_key(run, name)
local task, journal = task_key(branch, key), journal_key(branch, key)
local t = call("HMGET", task, "token", "started", "reached", "handed", "prompt_tokens", "completion_tokens", "begun", "reserved", "crashes")
local r = call("HMGET", run, "id", "paid", "prompt_tokens", "completion_tokens", "events")
if t[1] ~= token or not r[1] then return 0 end
local line = call("HGET", ledger_key(run), field)
local paid, between, prompt, completion, served =
  string.match(line or "[0,0,0,0,0,0]", "^%[(%d+),(%d+,%d+),(%d+),(%d+),(%d+)%]$")
if not paid then wrong("ledger", "six numbers") end
local more = details ~= "" and {string.match(details, "^(%d+),(%d+),(%d+),(%d+)$")}
if more and not more[1] then wrong("details", "four numbers") end
if kind ~= "" then call("XLEN", events_key(run)) end
local function also(list, field, value)
  list[#list + 1] = field
  list[#list + 1] = value
end
local of_task, before = {}, tonumber(t[3] or 0)
local is_first = not line or (before == 0 and call("HLEN", journal) == 0)
if is_first or t[4] or (r[5] or 0) % 100 == 99 then needs_all() else needs("HSET", "XADD") end
if t[7] ~= begun or t[8] ~= reserved then of_task = {"begun", begun, "reserved", reserved} end
if call("HSETNX", journal, step, value) == 1 then
  local of_run = {"paid", (r[2] or 0) + 1}
  if kind ~= "" then
    local seq = (r[5] or 0) + 1
    put(run, seq, kind, name, key, t[2] or "0", "0", "0", rest)
    also(of_run, "events", seq)
  end
  call("HSET", ledger_key(run), field, string.format("[%.0f,%s,%.0f,%.0f,%s]",
       paid + 1, between, prompt + prompt_tokens, completion + completion_tokens, served))
  if prompt_tokens ~= "0" then  -- no field says 0: a commit tells by it whether there were any
    also(of_run, "prompt_tokens", (r[3] or 0) + prompt_tokens)
    also(of_task, "prompt_tokens", (t[5] or 0) + prompt_tokens)
  end
  if completion_tokens ~= "0" then
    also(of_run, "completion_tokens", (r[4] or 0) + completion_tokens)
    also(of_task, "completion_tokens", (t[6] or 0) + completion_tokens)
  end
  if more then
    local DETAILS = {"cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens"}
    local had = call("HMGET", run, "tokens" .. field, unpack(DETAILS))
    local of = {string.match(had[1] or "", "^%[(%d+),(%d+),(%d+),(%d+)%]$")}
    for i, detail in ipairs(DETAILS) do
      of[i] = string.format("%.0f", (of[i] or 0) + more[i])
      if more[i] ~= "0" then also(of_run, detail, (had[i + 1] or 0) + more[i]) end
    end
    also(of_run, "tokens" .. field, "[" .. table.concat(of, ",") .. "]")
  end
  call("HSET", run, unpack(of_run))
  if is_first then
    -- Begun after the run was over, they would outlive it. Of a journal that had a record before, the run's end saw to it.
    local ttl = call("PTTL", run)
    for _, k in ipairs(ttl > 0 and {journal, ledger_key(run)} or {}) do call("PEXPIRE", k, ttl) end
  end
end
if tonumber(reached) > before then
  if t[9] ~= "0" then also(of_task, "crashes", 0) end
  also(of_task, "reached", reached)
  if t[4] then call("HDEL", task, "handed") end
end
if #of_task > 0 then call("HSET", task, unpack(of_task)) end
return 1
