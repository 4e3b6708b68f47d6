-- Add to the account of a run: paid, replayed or in_doubt. The entries are nil for none, or a list of
-- {kind, agent, model, how many, tokens served}. Tools are apart, and by name. A call of a model also counts where it was made, with
-- its tokens: in the ledger, whose lines are [paid, replayed, in doubt, tokens of prompt, of answer, served]. details: nil or,
-- as a list, what of these tokens has a name in DETAILS. They stand in the run, by that name, and by line under "tokens":
-- clients of older versions could not read them in the ledger.
local COLUMN = {paid = 1, replayed = 2, in_doubt = 3}
-- Entries as they were noted, decoded. What is not a list of entries counts as none: it can break no other write.
-- but: "1", or the kind, agent and model as JSON, of the note that is reserved for the next step, to leave that out: the holder
-- of the claim has not begun it.
local function noted(text, but)
  if not text or text == "" then return nil end
  local ok, found = pcall(entries, text, "noted")
  if not ok then return nil end
  local known, of = pcall(cjson.decode, but == "1" and '["step","",""]' or but or "")
  for i, one in ipairs(known and type(of) == "table" and found or {}) do
    if one[1] == of[1] and one[2] == of[2] and one[3] == of[3] then
      one[4] = one[4] - 1
      if one[4] < 1 then table.remove(found, i) end
      break
    end
  end
  return found
end
-- The field of the run with the begun steps of a claim that were accounted for when it was given up, or refused.
local function seen_to(name, task, token) return "begun:" .. name .. "|" .. task .. "|" .. token end
local DETAILS = {"cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens"}
local function detail(run, field, details)
  local line = cjson.decode(redis.call("HGET", run, "tokens" .. field) or "[0,0,0,0]")
  for i, count in ipairs(details) do
    line[i] = line[i] + count
    if count > 0 then redis.call("HINCRBY", run, DETAILS[i], count) end
  end
  redis.call("HSET", run, "tokens" .. field, cjson.encode(line))
end
local function account(run, name, task, counter, entries, prompt_tokens, completion_tokens, details)
  for _, one in ipairs(entries or {}) do
    local kind, agent, model, many, served = unpack(one)
    redis.call("HINCRBY", run, (kind == "tool" and "tools_" or "") .. counter, many)
    if kind == "tool" and model ~= "" then redis.call("HINCRBY", run, "tools_" .. counter .. ":" .. model, many) end
    if kind == "model" then
      local ledger, field = ledger_key(run), cjson.encode({name, task, agent, model})
      local line = cjson.decode(redis.call("HGET", ledger, field) or "[0,0,0,0,0,0]")
      line[COLUMN[counter]] = line[COLUMN[counter]] + many
      line[4] = line[4] + (prompt_tokens or 0)
      line[5] = line[5] + (completion_tokens or 0)
      line[6] = line[6] + served
      if served > 0 then redis.call("HINCRBY", run, "replayed_tokens", served) end
      redis.call("HSET", ledger, field, cjson.encode(line))
      if details then detail(run, field, details) end
      -- Begun after the run was over, it would outlive it.
      local ttl = redis.call("PTTL", run)
      if ttl > 0 then redis.call("PEXPIRE", ledger, ttl) end
    end
  end
end
-- Steps that were begun and whose outcome will not be known are in doubt. Their claim is stored beside the count, and
-- is lost with it where the store is restored: a worker that remembers more detects it (find_lost_writes.lua). known: those that
-- were begun, where some of them are in no doubt.
local function doubt(run, name, task, token, entries, known)
  account(run, name, task, "in_doubt", entries)
  known = known or entries
  if not known or #known == 0 then return end
  local field = seen_to(name, task, token)
  local all = cjson.decode(redis.call("HGET", run, field) or "[]")
  for _, one in ipairs(known) do all[#all + 1] = {one[1], one[2], one[3], one[4]} end
  redis.call("HSET", run, field, cjson.encode(all))
end
