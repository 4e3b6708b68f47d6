"""Selects the files that belong in a bundle, and reports those that are left out.

Caches and environments are left out silently; files known to contain secrets, checkpoint databases and links out of the
folder are reported. A ``.runnerignore``, in gitignore's syntax, leaves out more, or includes them with ``!``.
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from pathspec import GitIgnoreSpec

from runner.bundles.project import is_environment
from runner.bundles.target import Target
from runner.core.errors import BadCrew, BundleTooLarge
from runner.core.settings import MEMORY

MIB = 1024 * 1024
#: The most that a bundle's files may hold together, uncompressed, unless ``--bundle-limit`` says otherwise.
DEFAULT_LIMIT = 32 * MIB
#: What no limit goes over, and no worker unpacks more than: a store's value and a worker's disk are finite.
MAX_LIMIT = 1024 * MIB
MAX_FILES = 20_000
IGNORE_FILE = ".runnerignore"
CALLS_FILE = ".runner-calls.json"
"""In a bundle, and no file of the author's: what models answered to its code where that was read."""

IGNORED = (
    # histories, caches and environments: large, and no part of the crew
    # (with slashes: a line `!.cache/` brings a folder back only where its rule has one, too)
    *(".git", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "node_modules/", ".tox/", ".mypy_cache/"),
    *(".pytest_cache/", ".ruff_cache/", "*.egg-info/", ".checkpoints/", ".DS_Store", IGNORE_FILE, CALLS_FILE),
    *(".cache/", ".local/"),  # of a crew file in a home directory: unpacked bundles are in there
)

SECRETS = (
    # settings of environments
    *(".env", ".env.*", "*.env", ".envrc", "secrets.*", ".secrets", ".secrets.*"),
    *("*.tfvars", "*.tfstate", "*.tfstate.*"),
    # of tools that log in somewhere
    *(".npmrc", ".netrc", "_netrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", ".htpasswd", ".dockercfg"),
    *(".databricks.cfg", ".databrickscfg", "*.kubeconfig", "*.tfvars.json"),
    *(".s3cfg", ".boto", ".terraformrc", "kubeconfig", ".docker/", ".kube/", ".aws/", ".azure/", ".gcloud/", "gcloud/"),
    *(".ssh/", ".gnupg/", ".password-store/", ".vault-token", ".vault_pass*", ".vault-pass*", ".renviron"),
    *("client_secret*.json", "*service-account*.json", "*service_account*.json", "token.json", "auth.json"),
    *(f"{name}.{end}" for name in ("*credentials*", "secret") for end in ("json", "toml", "yaml", "yml", "ini")),
    # keys
    *("*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"),
)
"""What holds secrets by its name, in whatever case."""

CHECKPOINTS = (".checkpoints.db", ".checkpoints.db-*")
DATABASES = (*CHECKPOINTS, f"{MEMORY}/")
"""Where `SqliteProvider` keeps checkpoints unless told otherwise, and flows remember: data of runs, and another bundle
after each."""

Why = Literal["secret", "checkpoints", "link", "dead link", "special", "ignored", "own"]

_SECRET = GitIgnoreSpec.from_lines(SECRETS)
_BUILT_IN = (*IGNORED, *SECRETS, *DATABASES)
_NEVER = GitIgnoreSpec.from_lines((*IGNORED, *SECRETS, *CHECKPOINTS))
_ACCOUNT = re.compile(rb'"type"\s*:\s*"(?:service_account|authorized_user|external_account_authorized_user)"')
_ACCOUNT_SECRET = re.compile(rb'"(?:private_key|refresh_token)"\s*:')
_CLIENT = re.compile(rb'"(?:installed|web)"\s*:\s*\{[^{}]*"client_secret"\s*:')
_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY")
_KEY_FOLLOWS = re.compile(rb"""[A-Z ]{0,20}-----(?:[\s"'+,]|\\[nr]){1,40}[A-Za-z0-9+/]{32}""")
_TABLE = re.compile(rb"CREATE TABLE [\"']?checkpoints[\"']?\s*\(")
_NAMES_INDEXES = re.compile(
    r"(?:.*requirements.*|constraints.*)\.(?:txt|in)|pyproject\.toml|uv\.(?:lock|toml)|poetry\.toml|pip\.(?:conf|ini)|Pipfile"
)
_LOGIN = re.compile(r"https?://([^\s/@'\"]+)@")
_VARIABLE = re.compile(r"(?:[^:@]*:)?\$\{\w+\}")
_DATABASE = b"SQLite format 3\0"
_HEAD = 64 * 1024  #: bytes of a file that are looked at
_LOOKED = 32 * MIB  #: and for a private key


class LeftOut(NamedTuple):
    """A file or folder (with a slash) that is left out of a bundle, and why."""

    name: str
    why: Why


@dataclass(frozen=True)
class Selected:
    """A file that belongs in a bundle, judged by its name and path."""

    name: str  # in the bundle, with slashes
    path: Path
    size: int
    wanted: bool  # the ignore file brings it back by name: what is in it does not matter


def private(content: bytes) -> Why | None:
    """Return why a file is left out because of its content; None if it is not."""
    head = content[:_HEAD]
    if _CLIENT.search(head) or (_ACCOUNT.search(head) and _ACCOUNT_SECRET.search(head)):
        return "secret"
    if any(_is_key(content, found) for found in _PRIVATE_KEY.finditer(content, 0, _LOOKED)):
        return "secret"
    if head.startswith(_DATABASE) and _TABLE.search(head):
        return "checkpoints"
    return None


def may_hold(name: str) -> bool:
    """Whether a file of that name is stored by default: neither a secret nor a cache."""
    return not (_NEVER.match_file(name) or _SECRET.match_file(name.lower()))


class Selection:
    """One walk over what a target includes, which ends as soon as it has seen too much.

    ``own`` are files, by their status, that the command itself reads or writes: unless named, they are no part of it.
    """

    def __init__(self, target: Target, limit: int, own: Iterable[os.stat_result] = ()) -> None:
        self.limit = limit
        self.left_out: list[LeftOut] = []
        self._target = target
        self._own = {_identity(one) for one in own}
        self._top = target.include.resolve()
        self._seen: list[Selected] = []
        # A package's rules may lie in it or beside it; they are read from where their file is.
        self._base = target.include
        if not (target.include / IGNORE_FILE).is_file() and (target.root / IGNORE_FILE).is_file():
            self._base = target.root
        self._rules = self._read_rules(self._base / IGNORE_FILE)

    def files(self) -> list[Selected]:
        """Yield every file that belongs in the bundle. Raises `BundleTooLarge` if they are too many or too large."""
        total = folders = 0
        top = self._target.include
        stack: list[tuple[Path, tuple[tuple[int, int], ...]]] = [(top, (_identity(top.stat()),))]  # and what is above
        while stack:
            folder, above = stack.pop()
            folders += 1
            if folders > MAX_FILES:  # links to folders can multiply without a single file
                raise self._too_many("folders")
            below: list[tuple[Path, tuple[tuple[int, int], ...]]] = []
            for path, info, wanted in self._entries(folder):
                if stat.S_ISDIR(info.st_mode):
                    if _identity(info) not in above:  # else a link back to where we came from
                        below.append((path, (*above, _identity(info))))
                    continue
                self._seen.append(Selected(self._name(path), path, info.st_size, wanted))
                total += info.st_size
                if total > self.limit:
                    raise self.too_large()
                if len(self._seen) > MAX_FILES:
                    raise self._too_many("files")
            stack += reversed(below)
        return self._seen

    def _entries(self, folder: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
        """The folders and regular files in a folder that belong there, links followed; if the rules name them."""
        try:
            paths = sorted(folder.iterdir())
        except OSError as error:
            if isinstance(error, FileNotFoundError) and folder != self._target.include:
                return  # gone by now, as folders of programs that work there are
            raise BadCrew(f"{self._name(folder)}: cannot be read: {error.strerror}") from error
        for path in paths:
            try:
                info = path.stat()
            except OSError as error:  # a link to nothing or to itself, a file gone by now, a folder not open to us
                if path.is_symlink():
                    self._cannot_hold(path, "dead link")
                    continue
                if isinstance(error, FileNotFoundError):
                    continue
                raise BadCrew(f"{self._name(path)}: cannot be read: {error.strerror}") from error
            is_folder = stat.S_ISDIR(info.st_mode)
            if not is_folder and not stat.S_ISREG(info.st_mode):
                self._cannot_hold(path, "special")  # a socket, a pipe, a device
                continue
            verdict = self._verdict(path, is_folder)
            if verdict == "selected" and _identity(info) in self._own:
                verdict = "own"
            if verdict == "selected" or verdict == "wanted":
                yield path, info, verdict == "wanted"
            elif verdict != "cache":
                self.left_out.append(LeftOut(self._name(path) + "/" * is_folder, verdict))

    def _cannot_hold(self, path: Path, why: Why) -> None:
        if not self._rules.check_file(path.relative_to(self._base).as_posix()).include:
            self.left_out.append(LeftOut(self._name(path), why))

    def _verdict(self, path: Path, is_folder: bool) -> Why | Literal["selected", "wanted", "cache"]:
        """Decide on a file or folder: the ignore file includes "wanted" ones again."""
        name = path.relative_to(self._base).as_posix() + "/" * is_folder
        if name == CALLS_FILE:  # even if it is wanted: a worker would take it for the recorded calls
            return "own"
        found = self._rules.check_file(name)
        if found.include is False:
            return "wanted"
        if found.include:
            return _why(found.index or 0)
        if _SECRET.match_file(name.lower()):
            return "secret"
        if is_folder and is_environment(path):
            return "cache"
        if not path.is_symlink():
            return "selected"
        target = path.resolve()
        if not target.is_relative_to(self._top):
            return "link"
        # A link must not carry a secret in under another name.
        inside, kept = target.relative_to(self._top).as_posix() + "/" * is_folder, target.name + "/" * is_folder
        return "secret" if _SECRET.match_file(inside.lower()) or _NEVER.match_file(kept) else "selected"

    def _read_rules(self, file: Path) -> GitIgnoreSpec:
        try:
            own = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
            return GitIgnoreSpec.from_lines([*_BUILT_IN, *own])
        except (OSError, ValueError) as error:  # ValueError: a pattern or an encoding that cannot be read
            raise BadCrew(f"{IGNORE_FILE}: cannot be read: {error}") from error

    def _name(self, path: Path) -> str:
        return path.relative_to(self._target.root).as_posix()

    def too_large(self) -> BundleTooLarge:
        """Return the error for a bundle over the limit in bytes, which names the largest files seen."""
        sizes = {file.name: file.size for file in self._seen}
        biggest = ", ".join(f"{name} {_human(size)}" for name, size in self._biggest(sizes))
        return BundleTooLarge(
            f"the files beside {self._target.file.name} are over the bundle limit of {_human(self.limit)} "
            f"(biggest seen: {biggest}); leave some out with a {IGNORE_FILE} file in {self._base}, "
            f"or raise the limit with --bundle-limit or RUNNER_BUNDLE_LIMIT"
        )

    def _too_many(self, what: str) -> BundleTooLarge:
        most = self._biggest({file.name: 1 for file in self._seen})
        seen = f" (most in: {', '.join(f'{name} {count:,}' for name, count in most)})" if most else ""
        return BundleTooLarge(
            f"there are more than {MAX_FILES:,} {what} beside {self._target.file.name}{seen}; "
            f"leave some out with a {IGNORE_FILE} file in {self._base}"
        )

    def _biggest(self, weights: dict[str, int]) -> list[tuple[str, int]]:
        """The three heaviest entries of the walked folder, each narrowed to the part that makes it heavy."""
        prefix = self._name(self._target.include)
        sums: Counter[str] = Counter()
        for name, weight in weights.items():
            parts = PurePosixPath(name).parts
            for depth in range(1, len(parts) + 1):
                sums["/".join(parts[:depth]) + "/" * (depth < len(parts))] += weight
        start = 0 if prefix == "." else len(PurePosixPath(prefix).parts)
        shown = []
        for name, weight in sums.most_common():
            if name.rstrip("/").count("/") != start:
                continue
            inside = [(n, w) for n, w in sums.items() if n.startswith(name) and w * 5 >= weight * 4]
            shown.append(max(inside, key=lambda item: item[0].rstrip("/").count("/")))
        return shown[:3]


def _why(rule: int) -> Why | Literal["cache"]:
    """Why the built-in rule of this number leaves a file out; those of the ignore file come after them."""
    if rule < len(IGNORED):
        return "cache"
    if rule < len(IGNORED) + len(SECRETS):
        return "secret"
    return "checkpoints" if rule < len(_BUILT_IN) else "ignored"


def _is_key(content: bytes, found: re.Match[bytes]) -> bool:
    """Whether a private key begins here: on a line of its own, or followed by its text. Code may mention the words."""
    before = content[max(0, found.start() - 80) : found.start()]
    alone = not before.rpartition(b"\n")[2].strip(b" \t\r\xef\xbb\xbf")
    return alone or _KEY_FOLLOWS.match(content, found.end()) is not None


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _human(size: int) -> str:
    if size < 1024:
        return f"{size} bytes"
    return f"{size / 1024:.1f} KiB" if size < MIB else f"{size / MIB:.1f} MiB"


def may_name_indexes(file: str) -> bool:
    """Whether a file of that name says where packages come from."""
    return _NAMES_INDEXES.fullmatch(file) is not None


def refuse_login(name: str, text: str) -> None:
    """Raise `BadCrew` for an index's URL with a password in it. One that stands as ``${NAME}`` is read on workers."""
    for found in _LOGIN.finditer(text):
        if not _VARIABLE.fullmatch(found[1]):
            raise BadCrew(
                f"{name}: a URL in it has a password or a token, which would be stored; take it out and give it to the "
                "workers: UV_INDEX_URL, UV_INDEX_<NAME>_USERNAME and _PASSWORD, or ${NAME} in the URL"
            )
