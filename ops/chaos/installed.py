"""Environments with packages of others and this product, for what is run there."""

import subprocess
import sys
from pathlib import Path

from runner.bundles.uv_build import uv

REPOSITORY = Path(__file__).parents[2]


def environment(folder: Path, packages: list[str]) -> Path:
    """The interpreter of an environment that has them and this product: made anew if it has another checkout of it."""
    python, made = folder / "bin" / "python", folder / "made"
    if not made.exists() or made.read_text() != str(REPOSITORY):
        subprocess.run([uv(), "venv", "-q", "--clear", "--python", sys.executable, folder], check=True)
        install = [uv(), "pip", "install", "-q", "--compile-bytecode", "--python", python, "-e", REPOSITORY, *packages]
        subprocess.run(install, check=True)
        made.write_text(str(REPOSITORY))
    return python
