"""Crews and their tasks as authors write them, how each task is performed, and what `kickoff()` does."""
