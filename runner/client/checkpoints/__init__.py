"""Checkpoints to look at and to choose from, wherever they are kept: files, SQLite, Redis, or a run on the fleet.

model     what a person sees: branches, checkpoints, the details of one. Pure
tree      forks nested under the checkpoint that they left. Pure
stored    a location of a provider
fleet     a run
where     which of them is meant
act       what a person decided, and who carries it out
"""
