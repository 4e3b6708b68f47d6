"""The journal of a task: records the result of each step and call, so that each is made and paid for once."""
