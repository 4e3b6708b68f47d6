-- Refuse a call before it has done anything. The argument's value is not shown: it may be a person's text.
local function wrong(slot, expected) error({err = "ERR " .. SCRIPT .. ".lua: " .. slot .. " is not " .. expected}) end
