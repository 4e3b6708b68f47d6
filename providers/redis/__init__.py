"""The store on Redis or Valkey (7.0 command set): keys, one script per operation, and their typed callers."""
