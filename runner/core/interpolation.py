"""Replaces placeholders in a crew's texts: ``{name}`` becomes the input of that name."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_\-]*)\}")


def interpolate(text: str, inputs: Mapping[str, Any]) -> str:
    """``text`` with ``{name}`` replaced by the input of that name, where there is one."""
    return _PLACEHOLDER.sub(lambda found: str(inputs.get(found[1], found[0])), text)


def placeholders(texts: Iterable[str]) -> list[str]:
    """Return the names of the placeholders in these texts, in order, with repetitions."""
    return [name for text in texts for name in _PLACEHOLDER.findall(text)]
