"""The journal of a task: the result of each step and call, so that it is done and paid for once."""
