"""Bundles: the same files, the same bundle; nothing in it that should not be; nothing out of it that is not there."""

import hashlib
import io
import os
import socket
import sqlite3
import sys
import tarfile
import threading
import zlib
from pathlib import Path

import pytest

from runner.bundles import bundle, selection, unpacking
from runner.bundles.bundle import contents, pack
from runner.bundles.selection import LeftOut, may_hold
from runner.bundles.target import parse_target
from runner.bundles.unpacking import unpack
from runner.core.errors import BadCrew, BundleTooLarge, TaskError
from runner.providers.sqlite import SqliteProvider


def write(root: Path, files: dict[str, str] | list[str]) -> Path:
    for name, text in dict.fromkeys(files, "").items() if isinstance(files, list) else files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def pack_folder(root: Path, **options: int) -> bundle.Bundle:
    return pack(parse_target(str(root / "crew.py")), **options)


def names(packed: bundle.Bundle) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(packed.data))) as tar:
        return tar.getnames()


def inside(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def forged(members: list[tuple[tarfile.TarInfo, bytes]]) -> tuple[bytes, str]:
    """A bundle that ``pack`` would never make."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(content))
    return zlib.compress(raw.getvalue()), hashlib.sha256(raw.getvalue()).hexdigest()


class TestTheSameFilesGiveTheSameBundle:
    def test_in_any_order_at_any_time_by_anyone(self, tmp_path):
        files = {"crew.py": "1", "tools.py": "2", "data/ä b.csv": "3", "data/" + "x" * 150 + ".txt": "4"}
        one = write(tmp_path / "one", files)
        two = write(tmp_path / "two", dict(reversed(files.items())))
        os.utime(two / "crew.py", (1, 1))
        (two / "tools.py").chmod(0o600)
        (two / "empty/folder").mkdir(parents=True)
        first, second = pack_folder(one), pack_folder(two)
        assert first == second
        assert (first.module, first.files, first.size) == ("crew", 4, 4)

    def test_a_known_bundle_keeps_its_hash(self, tmp_path):
        packed = pack_folder(write(tmp_path, {"crew.py": "crew = None\n", "données/a.txt": "é"}))
        assert packed.sha256 == "8618ba014353337889a0bfccaf49a29a08091cd0b1cdbe44a9e7078240d169dd"
        assert packed.sha256 == hashlib.sha256(zlib.decompress(packed.data)).hexdigest()

    def test_content_names_and_executability_count(self, tmp_path):
        base = pack_folder(write(tmp_path / "a", {"crew.py": "1"})).sha256
        assert pack_folder(write(tmp_path / "b", {"crew.py": "2"})).sha256 != base
        assert pack_folder(write(tmp_path / "c", {"crew.py": "1", "x": ""})).sha256 != base
        (write(tmp_path / "d", {"crew.py": "1"}) / "crew.py").chmod(0o755)
        assert pack_folder(tmp_path / "d").sha256 != base

    def test_a_package_is_packed_with_its_name_and_without_its_neighbours(self, tmp_path):
        write(tmp_path, ["team/__init__.py", "team/sub/__init__.py", "team/sub/crew.py", "team/a.yaml", "other/x.py"])
        packed = pack(parse_target(str(tmp_path / "team/sub/crew.py")))
        assert packed.module == "team.sub.crew"
        assert names(packed) == ["team/__init__.py", "team/a.yaml", "team/sub/__init__.py", "team/sub/crew.py"]


class TestWhatStaysOut:
    def test_caches_environments_and_secrets(self, tmp_path):
        out = [
            *(".git/config", ".hg/x", ".svn/x", "__pycache__/crew.pyc", "a/__pycache__/b.txt", "old.pyc", ".venv/x.py"),
            *("node_modules/m/x.js", ".tox/x", ".mypy_cache/x", ".pytest_cache/x", ".ruff_cache/x", "t.egg-info/PKG"),
            *(".checkpoints/x.json", ".DS_Store", ".env", ".env.local", "a/.env", "cert.pem", "a/my.key", "id_rsa"),
            *("id_ed25519.pub", "environment/pyvenv.cfg", "environment/lib/x.py", "venv/pyvenv.cfg"),
            *("conda/conda-meta/history", "conda/lib/python3.11/x.py"),
            *(".cache/crew-runner/bundles/x/crew.py", ".local/state/x", ".ssh/config", ".aws/credentials", ".netrc"),
        ]
        keep = ["crew.py", "env/rules.py", "a/environment.py", ".config.yaml", "keys.py"]
        assert names(pack_folder(write(tmp_path, out + keep))) == sorted(keep)

    def test_the_libraries_of_a_folder_that_is_an_environment_itself(self, tmp_path):
        libraries = ["lib/python3.12/site-packages/x.py", "lib64/python3.12/x.py"]
        keep = ["crew.py", "pyvenv.cfg", "lib/helper.py", "python/x.py"]
        assert names(pack_folder(write(tmp_path, libraries + keep))) == sorted(keep)

    def test_what_holds_secrets_is_told(self, tmp_path):
        out = [
            *(".env", "prod.env", ".envrc", ".npmrc", ".netrc", ".pypirc", ".git-credentials", "cert.p12", ".pgpass"),
            *("credentials.json", "my-credentials-1.json", "service-account.json", "secrets.yaml", "Secrets.TOML"),
            *("a/CERT.PEM", "a/store.jks", "a/vault.kdbx", "a/.htpasswd", "id_ecdsa", "prod.tfvars", "b/.env.prod"),
            *(
                "secret.json",
                "a/token.json",
                "auth.json",
                ".vault-token",
                ".vault_pass",
                ".Renviron",
                "credentials.toml",
            ),
            *("aws_credentials.yml", ".gnupg/x"),
            *(".docker/config.json", ".kube/config", ".aws/credentials", ".ssh/config", "x/.DOCKER/config.json"),
        ]
        keep = [
            "crew.py",
            "environment.py",
            "docker/config.json",
            "credentials.py",
            "keys.json",
            "a/secret_santa.py",
            "tokenizer.json",
        ]
        packed = pack_folder(write(tmp_path, out + keep))
        assert names(packed) == sorted(keep)
        folders = (".gnupg/", ".docker/", ".kube/", ".aws/", ".ssh/", "x/.DOCKER/")
        files = {name for name in out if not name.startswith(folders)}
        assert set(packed.left_out) == {LeftOut(name, "secret") for name in {*files, *folders}}
        assert dict(contents(packed)) == dict.fromkeys(keep, 0)
        write(tmp_path, {".runnerignore": "!secrets.yaml\n!.docker/\n!a/CERT.PEM\nkeys.json\n"})
        packed = pack_folder(tmp_path)
        kept = {*keep, "secrets.yaml", ".docker/config.json", "a/CERT.PEM"} - {"keys.json"}
        assert names(packed) == sorted(kept)
        assert LeftOut("keys.json", "ignored") in packed.left_out

    def test_what_holds_secrets_by_its_content_is_told(self, tmp_path):
        key = "-----BEGIN RSA PRIVATE " + "KEY-----\nx"
        account = '{"type": "service_account", "private_' + 'key": "x"}'
        login = '{"refresh_' + 'token": "x", "type": "authorized_user"}'
        write(tmp_path, {"crew.py": key, "a.json": account, "b.json": login, "deploy": key, "c.json": '{"type": 1}'})
        packed = pack_folder(tmp_path)
        assert names(packed) == ["c.json", "crew.py"]
        assert packed.left_out == tuple(LeftOut(name, "secret") for name in ("a.json", "b.json", "deploy"))
        assert (packed.files, packed.size) == (2, len(key) + len('{"type": 1}'))
        write(tmp_path, {".runnerignore": "!a.json\n"})
        assert names(pack_folder(tmp_path)) == ["a.json", "c.json", "crew.py"]

    def test_a_private_key_anywhere_in_a_text_is_told(self, tmp_path):
        begin = "-----BEGIN OPENSSH PRIVATE " + "KEY-----"
        text = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ"
        write(
            tmp_path,
            {
                "notes.txt": f"hello\n{begin}\n{text}\n",
                "deep.md": "x" * 79 + "\n" * 5_000_000 + f"  {begin}\r\n{text}",
                "one.json": f'{{"key": "{begin}\\n{text}\\n"}}',
                "in_code.py": f"KEY = '{begin}\n{text}'",
                "quoted.py": f'KEY = ("{begin}\\n"\n    "{text}")',
                "gclient.json": '{"installed": {"client_id": "x", "client_' + 'secret": "y"}}',
                "crew.py": "",
                "check.py": f'if "{begin}" in text or text.startswith("{begin}"):\n    raise ValueError\n',
                "prose.md": f"A key begins with {begin} and is not for you.",
                "library.so": f"\0\0{begin}\0-----END",
            },
        )
        packed = pack_folder(tmp_path)
        assert names(packed) == ["check.py", "crew.py", "library.so", "prose.md"]
        out = ("deep.md", "gclient.json", "in_code.py", "notes.txt", "one.json", "quoted.py")
        assert packed.left_out == tuple(LeftOut(name, "secret") for name in out)

    def test_a_folder_that_is_named_comes_back_without_its_keys(self, tmp_path):
        write(tmp_path, ["crew.py", ".ssh/config", ".ssh/id_rsa", ".cache/a/x", ".gnupg/x", ".venv/x.py"])
        write(tmp_path, {".runnerignore": "!.ssh/\n!.cache/\n!.venv/\n"})
        packed = pack_folder(tmp_path)
        assert names(packed) == [".cache/a/x", ".ssh/config", ".venv/x.py", "crew.py"]
        assert packed.left_out == (LeftOut(".gnupg/", "secret"), LeftOut(".ssh/id_rsa", "secret"))
        write(tmp_path, {".runnerignore": "!.ssh/\n!id_rsa\n"})
        assert names(pack_folder(tmp_path)) == [".ssh/config", ".ssh/id_rsa", "crew.py"]

    def test_databases_of_checkpoints_are_told_wherever_they_are(self, tmp_path):
        write(tmp_path, ["crew.py"])
        for place in (".checkpoints.db", "mine.db"):
            SqliteProvider().checkpoint('{"x": 1}', str(tmp_path / place))
        with sqlite3.connect(tmp_path / "data.db") as data:
            data.execute("CREATE TABLE owls (id TEXT)")
        data.close()
        write(tmp_path, [".checkpoints.db-wal", "mine.db-wal", "mine.db-shm"])
        first = pack_folder(tmp_path)
        assert names(first) == ["crew.py", "data.db"]
        found = ["mine.db", ".checkpoints.db", ".checkpoints.db-wal", "mine.db-shm", "mine.db-wal"]
        assert {one.name for one in first.left_out if one.why == "checkpoints"} == set(found)
        # so a run does not change the bundle
        for name in found[1:]:
            (tmp_path / name).unlink()
        SqliteProvider().checkpoint('{"x": 2}', str(tmp_path / "mine.db"))
        assert pack_folder(tmp_path).sha256 == first.sha256

    def test_runnerignore_adds_and_takes_back(self, tmp_path):
        rules = "# big\n/data/*\n!/data/small.csv\n*.log\n!keep.log\n!.env.example\n!vendored/\n"
        write(tmp_path, ["crew.py", "data/big.csv", "data/small.csv", "a/b.log", "a/keep.log", "a/data/x.csv"])
        write(tmp_path, [".env", ".env.example", "vendored/pyvenv.cfg", "other/pyvenv.cfg"])
        write(tmp_path, {".runnerignore": rules})
        kept = [".env.example", "a/data/x.csv", "a/keep.log", "crew.py", "data/small.csv", "vendored/pyvenv.cfg"]
        assert names(pack_folder(tmp_path)) == kept

    def test_a_file_named_as_the_recorded_calls_is_never_packed(self, tmp_path):
        write(tmp_path, {"crew.py": "", ".runnerignore": "!.runner-calls.json\n", ".runner-calls.json": "{"})
        assert names(pack_folder(tmp_path)) == ["crew.py"]

    @pytest.mark.parametrize("place", ["team/.runnerignore", ".runnerignore"])
    def test_runnerignore_in_a_package_or_beside_it(self, tmp_path, place):
        rule = "/big.csv" if place.startswith("team") else "/team/big.csv"
        write(tmp_path, {"team/__init__.py": "", "team/crew.py": "", "team/big.csv": "", place: rule})
        assert names(pack(parse_target(str(tmp_path / "team/crew.py")))) == ["team/__init__.py", "team/crew.py"]

    def test_the_crew_file_cannot_be_left_out(self, tmp_path):
        write(tmp_path, {"crew.py": "", ".runnerignore": "*.py"})
        with pytest.raises(BadCrew, match=r"crew\.py itself is left out"):
            pack_folder(tmp_path)

    def test_a_bad_rule_is_an_error(self, tmp_path):
        (write(tmp_path, ["crew.py"]) / ".runnerignore").write_bytes(b"\xff\xfe")
        with pytest.raises(BadCrew, match=r"\.runnerignore: cannot be read"):
            pack_folder(tmp_path)


class TestLinksAndOddFiles:
    def test_links_to_files_and_folders_inside_are_followed(self, tmp_path):
        write(tmp_path, {"shared/tools.py": "T", "shared/sub/x.py": "X", "crew.py": ""})
        (tmp_path / "tools.py").symlink_to("shared/tools.py")
        (tmp_path / "lib").symlink_to("shared")
        packed = pack_folder(tmp_path)
        shared = ["shared/sub/x.py", "shared/tools.py"]
        assert names(packed) == ["crew.py", "lib/sub/x.py", "lib/tools.py", *shared, "tools.py"]
        assert packed.left_out == ()
        home = unpack(packed.data, packed.sha256, tmp_path / "cache")
        assert (home / "tools.py").read_text() == "T"
        assert not (home / "tools.py").is_symlink()

    def test_links_that_lead_out_stay_out_unless_they_are_asked_for(self, tmp_path):
        write(tmp_path, {"shared/tools.py": "T", "shared/sub/x.py": "X", "here/crew.py": "", "private": "P"})
        (tmp_path / "here/tools.py").symlink_to("../shared/tools.py")
        (tmp_path / "here/lib").symlink_to(tmp_path / "shared")
        (tmp_path / "here/shadow.txt").symlink_to("../private")
        (tmp_path / "here/around").symlink_to("tools.py")  # and one that leads to one
        packed = pack_folder(tmp_path / "here")
        assert names(packed) == ["crew.py"]
        out = ("around", "lib/", "shadow.txt", "tools.py")
        assert packed.left_out == tuple(LeftOut(name, "link") for name in out)
        write(tmp_path, {"here/.runnerignore": "!lib\n!tools.py\n"})
        packed = pack_folder(tmp_path / "here")
        assert names(packed) == ["crew.py", "lib/sub/x.py", "lib/tools.py", "tools.py"]

    def test_loops_end_and_what_cannot_be_packed_is_named(self, tmp_path):
        write(tmp_path, ["crew.py", "a/x.py", ".venv/bin/python3"])
        (tmp_path / "a/up").symlink_to("..")
        (tmp_path / "self").symlink_to("self")
        (tmp_path / "dead").symlink_to("nowhere")
        (tmp_path / "dead.pyc").symlink_to("nowhere")  # one that is left out anyhow
        (tmp_path / ".venv/bin/python").symlink_to("nowhere")
        os.mkfifo(tmp_path / "pipe")
        packed = pack_folder(tmp_path)
        assert names(packed) == ["a/x.py", "crew.py"]
        assert packed.left_out == (("dead", "dead link"), ("pipe", "special"), ("self", "dead link"))

    def test_links_that_multiply_end(self, tmp_path, monkeypatch):
        monkeypatch.setattr(selection, "MAX_FILES", 200)
        write(tmp_path, ["crew.py"])
        for level in range(20):  # 2 ** 20 paths, not one file
            (tmp_path / f"d{level}").mkdir()
            (tmp_path / f"d{level}/a").symlink_to(f"../d{level + 1}")
            (tmp_path / f"d{level}/b").symlink_to(f"../d{level + 1}")
        (tmp_path / "d20").mkdir()
        with pytest.raises(BundleTooLarge, match="more than 200 folders"):
            pack_folder(tmp_path)

    def test_a_link_brings_no_secret_in_under_another_name(self, tmp_path):
        write(tmp_path, ["secret/.env", "here/crew.py", "here/.aws/config", "here/.env"])
        (tmp_path / "here/settings").symlink_to("../secret/.env")
        (tmp_path / "here/settings.txt").symlink_to(".env")
        (tmp_path / "here/account").symlink_to(".aws/config")
        assert names(pack_folder(tmp_path / "here")) == ["crew.py"]

    def test_pipes_and_sockets_are_skipped(self, tmp_path, monkeypatch):
        monkeypatch.chdir(write(tmp_path, ["crew.py"]))  # a socket's path is short
        os.mkfifo("pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
            assert names(pack_folder(tmp_path)) == ["crew.py"]

    @pytest.mark.skipif(sys.platform != "linux", reason="needs a file that no one can read, root included")
    def test_a_file_that_cannot_be_read_is_named(self, tmp_path):
        (write(tmp_path, {"crew.py": "", ".runnerignore": "!data.bin"}) / "data.bin").symlink_to("/proc/self/mem")
        with pytest.raises(BadCrew, match=r"^data\.bin: cannot be read: "):
            pack_folder(tmp_path)


class TestLimits:
    def test_the_error_names_the_limit_the_biggest_and_the_ways_out(self, tmp_path):
        write(tmp_path, {"crew.py": "", "data/raw/big.csv": "x" * 3000, "data/a.csv": "x", "model.bin": "x" * 1500})
        with pytest.raises(BundleTooLarge) as caught:
            pack_folder(tmp_path, limit=4000)
        text = str(caught.value)
        assert text.startswith("the files beside crew.py are over the bundle limit of 3.9 KiB")
        assert "data/raw/big.csv 2.9 KiB, model.bin 1.5 KiB" in text
        assert ".runnerignore" in text
        assert "--bundle-limit or RUNNER_BUNDLE_LIMIT" in text
        assert "\n" not in text

    def test_exactly_the_limit_is_fine(self, tmp_path):
        write(tmp_path, {"crew.py": "x" * 100})
        assert pack_folder(tmp_path, limit=100).size == 100
        with pytest.raises(BundleTooLarge):
            pack_folder(tmp_path, limit=99)

    def test_the_walk_ends_where_the_limit_is(self, tmp_path, monkeypatch):
        write(tmp_path, {"crew.py": "", "a/big": "x" * 1000, "b/never/x": ""})
        seen = []
        listing = Path.iterdir
        monkeypatch.setattr(Path, "iterdir", lambda self: seen.append(self.name) or listing(self))
        with pytest.raises(BundleTooLarge):
            pack_folder(tmp_path, limit=100)
        assert "a" in seen
        assert "never" not in seen

    def test_too_many_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr(selection, "MAX_FILES", 10)
        write(tmp_path, ["crew.py", *(f"many/{n}" for n in range(11))])
        with pytest.raises(BundleTooLarge, match=r"more than 10 files beside crew\.py \(most in: many/ 10"):
            pack_folder(tmp_path)

    def test_a_file_that_grew_meanwhile_does_not_pass(self, tmp_path):
        target = parse_target(str(write(tmp_path, {"crew.py": "1"}) / "crew.py"))
        walk = selection.Selection(target, 100)
        (file,) = walk.files()
        file.path.write_text("x" * 200)
        with pytest.raises(BundleTooLarge):
            bundle._read(file, 100, walk)


class TestUnpack:
    def test_gives_back_what_was_packed(self, tmp_path):
        files = {"crew.py": "crew", "config/agents.yaml": "a: 1", "run.sh": "#!"}
        (write(tmp_path / "in", files) / "run.sh").chmod(0o755)
        packed = pack_folder(tmp_path / "in")
        home = unpack(packed.data, packed.sha256, tmp_path / "cache")
        assert home == tmp_path / "cache" / packed.sha256
        assert {str(p.relative_to(home)): p.read_text() for p in home.rglob("*") if p.is_file()} == files
        assert os.access(home / "run.sh", os.X_OK)
        assert inside(tmp_path / "cache") == [packed.sha256]

    def test_once(self, tmp_path):
        packed = pack_folder(write(tmp_path / "in", ["crew.py"]))
        home = unpack(packed.data, packed.sha256, tmp_path / "cache")
        (home / "mark").touch()
        assert unpack(b"not even looked at", packed.sha256, tmp_path / "cache") == home
        assert (home / "mark").exists()

    def test_many_at_once(self, tmp_path):
        packed = pack_folder(write(tmp_path / "in", [f"{n}.txt" for n in range(50)] + ["crew.py"]))
        start, homes = threading.Barrier(6), []

        def one() -> None:
            start.wait(5)
            homes.append(unpack(packed.data, packed.sha256, tmp_path / "cache"))

        threads = [threading.Thread(target=one) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert homes == [tmp_path / "cache" / packed.sha256] * 6
        assert inside(tmp_path / "cache") == [packed.sha256]
        assert len(list(homes[0].iterdir())) == 51

    def test_it_is_on_the_disk_before_it_has_its_name(self, tmp_path, monkeypatch):
        synced: set[str] = set()
        sync, rename = os.fsync, Path.rename

        def noted(handle: int) -> None:
            sync(handle)
            synced.add(str(Path(f"/proc/self/fd/{handle}").readlink()))

        def renamed(self: Path, target: Path) -> Path:
            assert synced == {str(self), *(str(path) for path in self.rglob("*"))}
            return rename(self, target)

        monkeypatch.setattr(os, "fsync", noted)
        monkeypatch.setattr(Path, "rename", renamed)
        packed = pack_folder(write(tmp_path / "in", ["crew.py", "a/b.txt", "a/c/d.txt"]))
        unpack(packed.data, packed.sha256, tmp_path / "cache")
        assert str(tmp_path / "cache") in synced

    @pytest.mark.parametrize("spoil", [lambda d: d[:-9], lambda d: b"", lambda d: b"nonsense", lambda d: d[:20] + d])
    def test_damaged_data_is_refused(self, tmp_path, spoil):
        packed = pack_folder(write(tmp_path / "in", {"crew.py": "x" * 99}))
        with pytest.raises(TaskError, match="damaged"):
            unpack(spoil(packed.data), packed.sha256, tmp_path / "cache")
        assert inside(tmp_path / "cache") == []

    def test_other_content_is_refused(self, tmp_path):
        one = pack_folder(write(tmp_path / "one", {"crew.py": "1"}))
        two = pack_folder(write(tmp_path / "two", {"crew.py": "2"}))
        with pytest.raises(TaskError, match="does not match its hash"):
            unpack(one.data, two.sha256, tmp_path / "cache")

    @pytest.mark.parametrize("sha256", ["", "../../etc", "a" * 63, "A" * 64, "a" * 64 + "\n"])
    def test_only_a_sha256_is_a_name(self, tmp_path, sha256):
        with pytest.raises(TaskError, match="not the sha256"):
            unpack(b"", sha256, tmp_path)

    @pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "..", "."])
    def test_nothing_is_written_outside(self, tmp_path, name):
        data, sha256 = forged([(tarfile.TarInfo(name), b"x")])
        with pytest.raises(TaskError, match="is not allowed"):
            unpack(data, sha256, tmp_path / "cache")
        assert inside(tmp_path) == ["cache"]
        assert inside(tmp_path / "cache") == []

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
    def test_only_files_and_folders(self, tmp_path, kind):
        info = tarfile.TarInfo("odd")
        info.type, info.linkname = kind, "/etc"
        data, sha256 = forged([(info, b""), (tarfile.TarInfo("odd/x"), b"x")])
        with pytest.raises(TaskError, match="not a regular file"):
            unpack(data, sha256, tmp_path / "cache")

    def test_each_name_once(self, tmp_path):
        data, sha256 = forged([(tarfile.TarInfo("a"), b"1"), (tarfile.TarInfo("a"), b"2")])
        with pytest.raises(TaskError, match="damaged"):
            unpack(data, sha256, tmp_path / "cache")
        data, sha256 = forged([(tarfile.TarInfo("a"), b"1"), (tarfile.TarInfo("a/b"), b"2")])
        with pytest.raises(TaskError, match="damaged"):
            unpack(data, sha256, tmp_path / "cache")

    def test_a_bomb_is_stopped(self, tmp_path, monkeypatch):
        monkeypatch.setattr(unpacking, "MAX_LIMIT", 1000)
        monkeypatch.setattr(unpacking, "MAX_FILES", 1)
        raw = b"\0" * 8_000_000
        with pytest.raises(TaskError, match="larger than any bundle"):
            unpack(zlib.compress(raw), hashlib.sha256(raw).hexdigest(), tmp_path / "cache")


@pytest.mark.parametrize("name", ["secrets.yaml", "Secrets.YAML", "in/Server.PEM", ".NetRC"])
def test_what_a_task_leaves_is_not_stored_by_the_names_of_secrets_in_whatever_case(name: str) -> None:
    assert not may_hold(name)
    assert may_hold(f"report on {name[:-1]}")


def test_strange_names_and_programs_come_out_as_they_went_in(tmp_path: Path) -> None:
    root = write(tmp_path / "crew", ["crew.py", "run.sh", os.fsdecode(b"caf\xe9.txt"), "two\nlines.txt"])
    (root / "run.sh").chmod(0o755)
    packed = pack_folder(root)
    home = unpack(packed.data, packed.sha256, tmp_path / "cache")
    found = {os.fsencode(path.name): os.access(path, os.X_OK) for path in home.iterdir()}
    assert found == {b"crew.py": False, b"run.sh": True, b"caf\xe9.txt": False, b"two\nlines.txt": False}


def test_what_is_gone_before_it_is_read_is_not_packed(tmp_path, monkeypatch):
    root = write(tmp_path, ["crew.py", "kept.txt", "passing.txt", "scratch/one.txt"])
    listed = selection.Selection._entries

    def entries(self, folder):
        yield from list(listed(self, folder))
        for path in (root / "passing.txt", root / "scratch" / "one.txt"):  # another program works there
            path.unlink(missing_ok=True)
        if (root / "scratch").exists():
            (root / "scratch").rmdir()

    monkeypatch.setattr(selection.Selection, "_entries", entries)
    packed = pack_folder(root)
    assert names(packed) == ["crew.py", "kept.txt"]
    assert packed.left_out == ()
