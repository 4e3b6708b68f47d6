"""The store on Redis or Valkey (7.0 command set): keys, one script per operation, and their typed callers."""

from runner.core import deferred

deferred.defer("redis.asyncio")  # a megabyte, which `redis` imports and nothing here uses
