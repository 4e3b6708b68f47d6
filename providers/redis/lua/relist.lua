-- List runs again in indexes that were lost: all of them, those of which a branch runs, and those that are kept for a while.
--
-- KEYS home runs active expiring
-- ARGV ids:texts
-- USES now
--
-- Returns how many of them there are.
for _, index in ipairs({runs, active, expiring}) do redis.call("ZCARD", index) end
local at, many = now(), 0
for _, id in ipairs(ids) do
  local run = run_key(home, id)
  local r = redis.pcall("HMGET", run, "id", "created_at", "live")
  if r[1] == id and tonumber(r[2]) then
    many = many + 1
    redis.call("ZADD", runs, "NX", r[2], id)
    if (tonumber(r[3]) or 0) > 0 then redis.call("ZADD", active, "NX", r[2], id) end
    local ttl = redis.call("PTTL", run)
    if ttl > 0 then redis.call("ZADD", expiring, "NX", at + ttl, id) end
  end
end
return many
