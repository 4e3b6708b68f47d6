"""Checks without which nothing changes that anybody sees, by script and check, each with the reason."""

EQUIVALENT: dict[str, str] = {
    'answer.lua: without `status == "waiting"`': (
        "a branch that runs is written as running once more, and so is its run, which stands as its current line does"
    ),
    "ask.lua: without `is_active(run, name)`": (
        "a branch waits only when none of its tasks is claimed, a cancel takes the claims back, and one is complete "
        "when all is committed: one that is over while a task of it may still ask has failed. The task that failed "
        "stays in flight and has asked nothing, and is not committed, so that the branch is not found to wait"
    ),
    "begin_step.lua: without `lost`": "an account to which no entries are added stays as it is",
    "commit.lua: without `not ready`": (
        "a task that waits for one other has no count yet: counted, it is ready at once as well"
    ),
    'commit_next.lua: without `asked_for(on, "task_completed")`': "who may not do ZADD has created no run",
    "lib/output.lua: without `attempt`": (
        "a claimed task has the number of its attempt: `claim.lua` compares it, and nothing removes it"
    ),
    "find_position.lua: without `not at(r[1])`": (
        "a checkpoint is on one branch: where it was found already, the look at the next branch ends the search"
    ),
    "lib/account.lua: without `count > 0`": "a count of 0 that is stored reads as one that is not",
    "lib/account.lua: without `not text`": "what is no text is no JSON either, and counts for nothing",
    'lib/account.lua: without `text == ""`': "what is empty is no JSON either, and counts for nothing",
    "lib/account.lua: without `served > 0`": "a count of 0 that is stored reads as one that is not",
    "lib/close.lua: without `kept`": "an empty list that is stored reads as one that is not",
    "lib/take.lua: without `(not limit or tonumber(string.match(found, '^{\"seq\":(%d+)')) <= limit)`": (
        "a task is claimed when all that it waits for is committed on its branch: what a parent committed after the "
        "branch had left it was done again here, and is found here first"
    ),
    "lib/close.lua: without `#open > 0`": "what is not there is not removed",
    'lib/unlock.lua: without `job.context ~= "[]"`': "an empty list that is stored reads as one that is not",
    'lib/unlock.lua: without `job.timeout ~= "0"`': "a timeout of 0 that is stored reads as one that is not",
    'record_step.lua: without `redis.call("HLEN", journal) == 1`': (
        "a journal of several records has the lifetime of its run already, and gets the same once more"
    ),
    "find_position.lua: without `upto > left`": "what was committed later is left out by who reads it, too",
    "lib/account.lua: without `not ok`": "what a text that is refused gives in the place of entries has none",
    'lib/checkpoint.lua: without `trigger == "task_completed" and ""`': "it reads the same, and is shorter",
    'record_step.lua: without `count ~= "0"`': "a count of 0 that is stored reads as one that is not",
    'redeliver.lua: without `name == "#"`': "a job that has its name in the index is found by that, too",
    'resume.lua: without `parent ~= ""`': "no branch has no name: nothing is copied from it",
    "resume.lua: without `failed > 0`": "a count of 0 that is stored reads as one that is not",
    'record_own_step.lua: without `call("HLEN", journal) == 1`': "as of record_step.lua",
    'append_event.lua: without `ended ~= "0"`': "nothing that is open has the number 0: all of it is left",
    "append_event.lua: without `#open > 0`": "an empty list that is stored reads as one that is not",
    "find_lost_writes.lua: without `there`": "where another claim committed the output, it is the last one told there",
    "prune_states.lua: without `not own[at]`": "no checkpoint is its own ancestor: none is come by twice",
    "prune_states.lua: without `not beside[at]`": "who was come by already, and those before, are named once more",
    "redeliver.lua: without `long[run_id]`": "the jobs of a run are the same when they are read once more",
    "lib/account.lua: without `#known == 0`": "an empty list that is stored reads as one that is not",
    "find_position.lua: without `r[3]`": "each run has the field, of a bundle or of none",
    "lib/waiting.lua: without `not text`": (
        "what is not there is no JSON either, and what cannot be read is left alone; most often nothing waits, and an "
        "error would take longer"
    ),
    "reap.lua: without `token`": (
        "of what is not held nothing is taken back: no task has a claim without a token, and there is nothing to remove"
    ),
}
