"""Performs one attempt at one task: the executor, the cache of crews' code, and the ports."""
