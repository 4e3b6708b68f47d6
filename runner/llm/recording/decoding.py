"""What decodes an answer that came compressed, for its record: its reader decodes it by itself, or has it as it is."""

import importlib
import zlib
from collections.abc import Callable
from functools import reduce
from typing import Any

_RAW = -zlib.MAX_WBITS  #: deflate without the frame that it should have, which some services leave out


def decoder(encodings: str) -> Callable[[bytes], bytes] | None:
    """Return a function that decodes the pieces of one body in turn; it raises `ValueError` for invalid ones.

    ``encodings`` is the Content-Encoding. Returns None if one of them is unknown, or its package is not installed.
    """
    names = [name for one in encodings.lower().split(",") if (name := one.strip()) not in ("", "identity")]
    if not names:
        return bytes
    found = [_begin(name) for name in reversed(names)]
    if None in found:
        return None

    def decoded(piece: bytes) -> bytes:
        try:
            return reduce(lambda text, decode: decode(text), found, piece)
        except Exception as error:  # each package's own
            raise ValueError("it cannot be decoded") from error

    return decoded


def _begin(name: str) -> Any:
    try:
        if name in ("gzip", "x-gzip"):
            return _Frames(lambda _: zlib.decompressobj(16 + zlib.MAX_WBITS))
        if name == "deflate":
            return _Frames(lambda first: zlib.decompressobj(zlib.MAX_WBITS if first[0] & 15 == 8 else _RAW))
        if name == "br":
            return _brotli()
        if name == "zstd":
            return _Frames(_zstd())
    except ImportError:
        return None
    return None


def _brotli() -> Callable[[bytes], bytes]:
    one = _first("brotli", "brotlicffi").Decompressor()
    found: Callable[[bytes], bytes] = getattr(one, "process", None) or one.decompress
    return found


def _zstd() -> Callable[[bytes], Any]:
    library = _first("compression.zstd", "backports.zstd", "zstandard")
    one = library.ZstdDecompressor
    return lambda _: one().decompressobj() if hasattr(one, "decompressobj") else one()


def _first(*names: str) -> Any:
    """The first of these modules that is there. Raises ImportError."""
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return importlib.import_module(names[-1])


class _Frames:
    """Decodes frames that follow each other; what is no frame behind a whole one is passed over, as clients do."""

    def __init__(self, begin: Callable[[bytes], Any]) -> None:
        self._begin = begin
        self._now: Any = None
        self._had_one = False

    def __call__(self, piece: bytes) -> bytes:
        found = []
        while piece:
            if self._now is None:
                self._now = self._begin(piece)
            try:
                found.append(self._now.decompress(piece))
            except Exception:
                if self._had_one:
                    break
                raise
            piece = b""
            if self._now.eof:
                piece, self._now, self._had_one = self._now.unused_data, None, True
        return b"".join(found)
