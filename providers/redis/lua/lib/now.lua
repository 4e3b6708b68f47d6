-- The server's clock, in milliseconds: one clock for all machines.
local function now()
  local t = redis.call("TIME")
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
