-- The record of a committed output: what is known of the claim, then what its holder says (output: JSON without its opening brace).
-- of says whose it was, if it was not this claim's alone: see find_lost_writes.lua.
local function recorded_output(number, token, claims, worker, attempt, began, prompt_tokens, completion_tokens, at, output)
  local of, by, spent = "", "", ""
  if claims then of = '"of":"' .. (string.find(claims, ",%d") and claims or "") .. '",' end
  if attempt and began then
    by = '"by":[' .. cjson.encode(worker) .. "," .. attempt .. "," .. began .. "," .. string.format("%d", at - began) .. "],"
  end
  if prompt_tokens or completion_tokens then spent = '"tokens":[' .. (prompt_tokens or 0) .. "," .. (completion_tokens or 0) .. "]," end
  return '{"seq":' .. number .. ',"token":' .. token .. "," .. of .. by .. spent .. output
end
-- How many of the steps that the store acknowledged to this claim are gone from the journal.
local function steps_missing(journal, recorded, claims, token)
  return recorded + (string.match("," .. (claims or ""), "," .. token .. ":(%d+),") or 0) - redis.call("HLEN", journal)
end
