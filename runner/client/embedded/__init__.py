"""A Redis-compatible server for one user, started when first joined and gone soon after the last one left."""

from runner.client.embedded.find import find_binary
from runner.client.embedded.membership import Membership, join, running
from runner.client.embedded.paths import default_state_dir

__all__ = ["Membership", "default_state_dir", "find_binary", "join", "running"]
