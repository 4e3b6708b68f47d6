-- Take the oldest message of a queue, if it is that of a job: another is left where it is, for who can say what it is.
--
-- KEYS queue
-- ARGV job:text
--
-- job: the name of the Celery task, as JSON.
-- Returns the message, or nil.
local text = redis.call("LINDEX", queue, -1)
if not text then return nil end
if not (string.find(text, '"task":' .. job, 1, true) or string.find(text, '"task": ' .. job, 1, true)) then return nil end
return redis.call("RPOP", queue)
