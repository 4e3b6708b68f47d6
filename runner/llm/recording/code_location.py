"""What differs in requests by where their code was imported from: its folder, and the names of its modules. Pure."""

import json
import os
import re
from functools import lru_cache
from pathlib import Path

_MODULES = rb"_crew_[0-9a-f]{16}\b"  #: how the modules of a bundle, or of a folder here, are named
_BEFORE = rb"(?:(?<![\w./-])|(?<=\\[nrt])|(?<=file://))"  #: a place begins there, also after a line's end in JSON


def without(body: bytes, root: Path) -> bytes:
    """Return a request as it is from any folder; ``root`` is that of its code."""
    return _pattern(root).sub(b"", body)


@lru_cache(maxsize=32)
def _pattern(root: Path) -> re.Pattern[bytes]:
    places = {os.fspath(root), os.fspath(root.resolve())}
    names = places | {json.dumps(place)[1:-1] for place in places}
    folders = b"|".join(re.escape(os.fsencode(name)) for name in sorted(names, key=len, reverse=True))
    return re.compile(_BEFORE + rb"(?:" + folders + rb")(?![\w-])|" + _MODULES)
