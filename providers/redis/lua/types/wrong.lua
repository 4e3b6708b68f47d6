-- Refuse a call before it has done anything. What the argument says is told to nobody: it may be a person's text.
local function wrong(slot, expected) error({err = "ERR " .. SCRIPT .. ".lua: " .. slot .. " is not " .. expected}) end
