-- A task of a plan that grows was committed at seq: the texts that its branch's tasks share are of that version now.
local function expand(run, name, branch, key, seq, expansion)
  local shared = shared_key(branch)
  redis.call("HSET", shared, "version", seq)
  for field, text in pairs(expansion.put) do redis.call("HSET", shared, "=" .. field, text) end
  for _, field in ipairs(expansion.gone) do redis.call("HDEL", shared, "=" .. field) end
  for _, note in ipairs(expansion.notes) do emit(run, note[1], "branch", name, "task", key, "text", note[2]) end
end
