"""The repository, as the checks of the house see it."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _files() -> list[str]:
    """What a commit of everything would hold; in a source tree without git, all that is there."""
    if not (ROOT / ".git").exists():
        ignored = {"__pycache__", "build", "dist"}
        return [
            str(path.relative_to(ROOT))
            for path in sorted(ROOT.rglob("*"))
            if (path.is_symlink() or path.is_file())
            and not any(part in ignored or part.endswith((".egg-info", "_cache")) for part in path.parts)
        ]
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = sorted(set(listed.split("\0")) - {""})
    return [name for name in found if (ROOT / name).exists() or (ROOT / name).is_symlink()]


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder."""
    return ROOT


@pytest.fixture(scope="session")
def files() -> list[str]:
    """Every file of the repository, ignored ones left out; links are not followed."""
    return _files()


@pytest.fixture(scope="session")
def copy_repository(files, tmp_path_factory):
    """Copies the repository into a new folder, so that nothing is written in the real one."""

    def copy() -> Path:
        there = tmp_path_factory.mktemp("copy") / "repo"
        for name in files:
            target = there / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
        return there

    return copy
