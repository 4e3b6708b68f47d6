"""One attempt at one task: the executor, the cache of crews' code, and the port of adapters."""
