-- Every key of a run, to give them a lifetime or to take it away. What names others comes after them: it may go at once.
-- done: the names of its branches, where nothing is in flight on any.
local function each_key(run, act, done)
  for _, name in ipairs(done or redis.call("SMEMBERS", branches_key(run))) do
    local branch = branch_key(run, name)
    for _, task in ipairs(done and {} or redis.call("SMEMBERS", open_key(branch))) do
      act(task_key(branch, task))
      act(journal_key(branch, task))
    end
    if not done then act(open_key(branch)) end
    for _, k in ipairs({branch, outputs_key(branch), commit_log_key(branch), shared_key(branch), waits_key(branch), checkpoints_key(branch),
                        lineage_key(branch)}) do act(k) end
  end
  for _, k in ipairs({run, plan_key(run), ledger_key(run), events_key(run), branches_key(run)}) do act(k) end
end
