"""Checkpoints to look at and to choose from, wherever they are kept: files, SQLite, Redis, or a run on the fleet.

model     what a person sees: branches, checkpoints, the details of one. Pure
tree      forks nested under the checkpoint that they left. Pure
stored    a location of a provider
fleet     a run
local     commands that are carried out in this process
locate    which of them is meant
commands  what a person decided, and who carries it out
state     what a stored state says of itself. Pure
"""
