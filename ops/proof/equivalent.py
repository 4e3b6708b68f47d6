"""Checks without which nothing changes that anybody sees, by script and check, each with the reason."""

EQUIVALENT: dict[str, str] = {
    'answer.lua: status == "waiting"': (
        "a branch that runs is written as running once more, and so is its run, which stands as its current line does"
    ),
    "ask.lua: goes_on(run, name)": (
        "a branch waits only when none of its tasks is claimed, a cancel takes the claims back, and one is complete "
        "when all is committed: one that is over while a task of it may still ask has failed. The task that failed "
        "stays in flight and has asked nothing, and is not committed, so that the branch is not found to wait"
    ),
    "begin_step.lua: lost": "an account to which no entries are added stays as it is",
    "commit.lua: not ready": "a task that waits for one other has no count yet: counted, it is ready at once as well",
    "commit.lua: t[7]": "a claimed task has the number of its attempt: `claim.lua` compares it, and nothing removes it",
    "find_position.lua: not at(r[1])": (
        "a checkpoint is on one branch: where it was found already, the look at the next branch ends the search"
    ),
    "lib/account.lua: count > 0": "a count of 0 that is stored reads as one that is not",
    "lib/account.lua: not text": "what is no text is no JSON either, and counts for nothing",
    'lib/account.lua: text == ""': "what is empty is no JSON either, and counts for nothing",
    "lib/account.lua: served > 0": "a count of 0 that is stored reads as one that is not",
    "lib/close.lua: kept": "an empty list that is stored reads as one that is not",
    'lib/checkpoint.lua: on == ""': "no event is named in what is empty",
}
