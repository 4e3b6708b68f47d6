-- Whether a run of one branch has none of the keys that only some runs have, nor of these others: one look, instead of one at
-- each, or a write.
local function is_bare(run, branch, ...)
  return redis.call("EXISTS", plan_key(run), ledger_key(run), shared_key(branch), waits_key(branch), ...) == 0
end
-- Every key of a run, to give them a lifetime or to take it away. What names others comes after them: it may go at once.
-- done: the names of its branches, where nothing is in flight on any. bare: whether is_bare said that it is.
local function each_key(run, act, done, bare)
  for _, name in ipairs(done or redis.call("SMEMBERS", branches_key(run))) do
    local branch = branch_key(run, name)
    for _, task in ipairs(done and {} or redis.call("SMEMBERS", open_key(branch))) do
      act(task_key(branch, task))
      act(journal_key(branch, task))
    end
    if not done then act(open_key(branch)) end
    for _, k in ipairs({branch, outputs_key(branch), commit_log_key(branch), checkpoints_key(branch), lineage_key(branch)}) do act(k) end
    if not bare then act(shared_key(branch)); act(waits_key(branch)) end
  end
  if not bare then act(plan_key(run)); act(ledger_key(run)) end
  for _, k in ipairs({run, events_key(run), branches_key(run)}) do act(k) end
end
