-- One of many that are looked at by one script does not keep it from the others. overwritten: 1 once one failed at a key that holds
-- another type. The script returns it to its caller, which removes such keys.
local overwritten = 0
local function note_overwritten(failure)
  local text = type(failure) == "table" and failure.err or failure
  if type(text) == "string" and string.sub(text, 1, 9) == "WRONGTYPE" then overwritten = 1 end
end
-- Whether it could be called.
local function try(act, ...)
  local ok, failure = pcall(act, ...)
  if not ok then note_overwritten(failure) end
  return ok
end
-- What the server says to a command; an empty list where it fails.
local function asked(...)
  local answer = redis.pcall(...)
  if type(answer) ~= "table" or not answer.err then return answer end
  note_overwritten(answer)
  return {}
end
