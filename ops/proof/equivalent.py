"""Checks without which nothing changes that anybody sees, by script and check, each with the reason."""

EQUIVALENT: dict[str, str] = {
    "ask.lua: goes_on(run, name)": (
        "a branch that is over while one of its tasks is still claimed has a task that failed: it is left, in flight, "
        "and has asked nothing, so that the branch is not found to wait"
    ),
    "begin_step.lua: lost": "an account to which no entries are added stays as it is",
}
