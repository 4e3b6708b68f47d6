"""Builds a wheel of this package from where it is installed, for other interpreters on this machine."""

import base64
import csv
import functools
import hashlib
import io
import os
import uuid
import zipfile
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path

NAME = "crew-runner"
_PARTS = ("runner", "runner.tasks", "runner.providers")  #: where they lie, whatever the layout of the installation
_WHEEL = "Wheel-Version: 1.0\nGenerator: crew-runner\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@functools.cache
def contents() -> tuple[str, dict[str, bytes]]:
    """The digest of what this package is, and its files by their names in a wheel."""
    found = {name: path.read_bytes() for name, path in sorted(_files())}
    own = metadata.distribution(NAME)
    info = f"{NAME.replace('-', '_')}-{own.version}.dist-info"
    found[f"{info}/METADATA"] = (own.read_text("METADATA") or own.read_text("PKG-INFO") or "").encode()
    found[f"{info}/entry_points.txt"] = (own.read_text("entry_points.txt") or "").encode()
    found[f"{info}/WHEEL"] = _WHEEL.encode()
    digest = hashlib.sha256()
    for name, content in found.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16], found


def runner_wheel(cache: Path) -> Path:
    """Make the wheel, once for each version of this package, in a folder of the cache."""
    digest, files = contents()
    info = next(name for name in files if name.endswith(".dist-info/WHEEL")).removesuffix("/WHEEL")
    wheel = cache / "wheels" / digest / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    if wheel.is_file():
        return wheel
    wheel.parent.mkdir(parents=True, exist_ok=True)
    half = wheel.with_name(f".{uuid.uuid4().hex}")
    try:
        with zipfile.ZipFile(half, "w", zipfile.ZIP_DEFLATED) as made:
            for name, content in files.items():
                made.writestr(name, content)
            made.writestr(f"{info}/RECORD", _record(files, f"{info}/RECORD"))
        half.rename(wheel)
    finally:
        half.unlink(missing_ok=True)
    return wheel


def _files() -> Iterator[tuple[str, Path]]:
    for package in _PARTS:
        for top in map(Path, import_module(package).__path__):
            for folder, below, names in os.walk(top, followlinks=True):
                below[:] = sorted(one for one in below if one != "__pycache__")
                for name in names:
                    path = Path(folder, name)
                    if not name.endswith(".pyc"):
                        yield f"{package.replace('.', '/')}/{path.relative_to(top).as_posix()}", path


def _record(files: dict[str, bytes], own: str) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(content)])
    rows.writerow([own, "", ""])
    return text.getvalue()
