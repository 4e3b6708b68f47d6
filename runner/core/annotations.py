"""Annotations and signatures of functions and classes, which may name what is imported for type checkers alone.

From Python 3.14 on annotations are evaluated when they are asked for, so authors need not quote such names. They are
forward references here, where ``__annotations__`` and `inspect.signature` raise `NameError`.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    import annotationlib


def own_annotations(of: Any) -> dict[str, Any]:
    """Return the annotations of a function or a class, without those of its bases; none for what has none."""
    if sys.version_info >= (3, 14):
        try:
            return annotationlib.get_annotations(of, format=annotationlib.Format.FORWARDREF)
        except TypeError:
            return {}
    found: dict[str, Any] = getattr(of, "__annotations__", {})
    return found


def signature_of(of: Callable[..., Any]) -> inspect.Signature:
    """Return the signature. Raises `ValueError` or `TypeError` where `inspect.signature` does."""
    if sys.version_info >= (3, 14):
        return inspect.signature(of, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(of)
