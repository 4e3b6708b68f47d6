-- A signal came to the process that performs this task: write a checkpoint of its branch, if the run asked for that.
--
-- KEYS run branch
-- ARGV name:text key:text trigger:text stamp:text
-- USES now queued is_active journals checkpoint intact
--
-- Returns 1, or 0 where the branch does not run.
if not is_active(run, name) then return 0 end
intact_branch(branch)
checkpoint(run, name, branch, trigger, key, stamp, now())
return 1
