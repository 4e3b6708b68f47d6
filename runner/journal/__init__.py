"""The journal of a task: what each step and call gave, so that it is done and paid for once."""
