"""Signed bundles: a worker that has a key runs only code that was signed with it.

The signature covers everything that decides which code runs: the bundle by its hash, the module and the name in it, and
the adapter. Anyone who can write to the store can still start signed code with other inputs, and nothing else.
"""

import hashlib
import hmac
import json

from runner.core.errors import UsageError
from runner.core.settings import setting

VARIABLE = "RUNNER_BUNDLE_KEY"
SHORTEST = 16  #: characters of a key


def keys() -> list[str]:
    """Return the keys in the environment, separated by commas there: the first one signs, all of them verify."""
    found = [key.strip() for key in setting(VARIABLE, "").split(",") if key.strip()]
    if any(len(key) < SHORTEST for key in found):
        raise UsageError(
            f"a key in {VARIABLE} is shorter than {SHORTEST} characters: `openssl rand -hex 32` makes a good one"
        )
    return found


def sign(sha256: str, module: str, attr: str, adapter: str) -> str:
    """Return the signature of a crew's code; "" if there is no key."""
    return next((_signature(key, sha256, module, attr, adapter) for key in keys()), "")


def verify(signature: str, *code: str) -> bool:
    """Whether one of the keys signed this code, see `sign`. Without a key nothing needs a signature."""
    found = keys()
    return not found or any(hmac.compare_digest(_signature(key, *code).encode(), signature.encode()) for key in found)


def _signature(key: str, *code: str) -> str:
    text = json.dumps(["crew-runner bundle 1", *code])
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
