"""What pip is configured with is what uv is told, unless it is told something itself."""

from pathlib import Path

import pytest

from runner.bundles import pip_settings

FILE = """
[global]
index-url = https://me:hunter2@packages.example/simple
extra-index-url =
    https://one.example/simple
    https://two.example/simple
find_links = /wheels
trusted-host = one.example
    two.example
cert = /etc/ca.pem
constraint = /etc/constraints.txt
[install]
find-links = /wheels /more
[download]
find-links = /not
"""
ALL = {
    "UV_DEFAULT_INDEX": "https://me:hunter2@packages.example/simple",
    "UV_INDEX": "https://one.example/simple https://two.example/simple",
    "UV_INDEX_STRATEGY": "unsafe-best-match",
    "UV_FIND_LINKS": "/wheels,/more",
    "UV_CONSTRAINT": "/etc/constraints.txt",
    "UV_INSECURE_HOST": "one.example two.example",
    "SSL_CERT_FILE": "/etc/ca.pem",
}


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a user with a file of pip's, on a machine without any."""
    (folder := tmp_path / "home" / ".config" / "pip").mkdir(parents=True)
    (folder / "pip.conf").write_text(FILE)
    files = pip_settings._files
    monkeypatch.setattr(
        pip_settings, "_files", lambda environ: [one for one in files(environ) if one.is_relative_to(tmp_path)]
    )
    return {"HOME": str(tmp_path / "home")}


def test_all_that_its_files_say(environ: dict[str, str], tmp_path: Path) -> None:
    assert pip_settings.for_uv(tmp_path, environ) == ALL


def test_a_variable_comes_before_a_file_and_one_that_is_named_stands_for_the_user_s(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (named := tmp_path / "named.conf").write_text("[global]\ncert = /named.pem\nindex-url = https://named.example\n")
    found = pip_settings.for_uv(
        tmp_path, {**environ, "PIP_CONFIG_FILE": str(named), "PIP_INDEX_URL": "https://variable.example"}
    )
    assert found == {"SSL_CERT_FILE": "/named.pem", "UV_DEFAULT_INDEX": "https://variable.example"}
    missing = {**environ, "PIP_CONFIG_FILE": str(tmp_path / "missing.conf")}
    assert pip_settings.for_uv(tmp_path, missing) == ALL
    none = {**environ, "PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "/a /b"}
    assert pip_settings.for_uv(tmp_path, none) == {"UV_FIND_LINKS": "/a,/b"}


def test_a_file_that_is_none_says_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    (Path(environ["HOME"]) / ".config/pip/pip.conf").write_bytes(b"index-url = \xff")
    assert pip_settings.for_uv(tmp_path, {**environ, "PIP_PROXY": "http://proxy:3128"}) == {
        "ALL_PROXY": "http://proxy:3128"
    }


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("home/.config/uv/uv.toml", '[[index]]\nurl = "https://own.example"\n[pip]\nfind-links = ["/own"]\n'),
        ("pyproject.toml", '[tool.uv]\nfind-links = ["/own"]\n[[tool.uv.index]]\nurl = "https://own.example"\n'),
    ],
)
def test_what_uv_s_own_files_say_stays(environ: dict[str, str], tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert pip_settings.for_uv(tmp_path, environ).keys() == {"UV_CONSTRAINT", "UV_INSECURE_HOST", "SSL_CERT_FILE"}


def test_what_uv_s_own_variables_say_stays(environ: dict[str, str], tmp_path: Path) -> None:
    own = {"UV_INDEX_URL": "https://own.example", "UV_EXTRA_INDEX_URL": "https://more.example", "SSL_CERT_FILE": "/own"}
    assert pip_settings.for_uv(tmp_path, {**environ, **own}).keys() == {
        "UV_CONSTRAINT",
        "UV_FIND_LINKS",
        "UV_INSECURE_HOST",
    }


@pytest.mark.parametrize(
    ("more", "own", "options"),
    [
        ({"PIP_NO_INDEX": "1"}, "", ["--no-index"]),
        ({"PIP_NO_INDEX": "off"}, "", []),
        ({"PIP_NO_INDEX": "1", "UV_INDEX_URL": "https://own.example"}, "", []),
        ({"PIP_NO_INDEX": "true"}, '[[index]]\nurl = "https://own.example"\n', []),
        ({}, "", []),
    ],
)
def test_where_pip_asks_no_index_uv_asks_none(
    environ: dict[str, str], tmp_path: Path, more: dict[str, str], own: str, options: list[str]
) -> None:
    (tmp_path / "uv.toml").write_text(own)
    assert pip_settings.options(tmp_path, {**environ, **more}) == options


def test_where_a_file_of_pip_s_says_no_index_uv_asks_none(environ: dict[str, str], tmp_path: Path) -> None:
    (Path(environ["HOME"]) / ".config/pip/pip.conf").write_text("[global]\nno-index = yes\nfind-links = /wheels\n")
    assert pip_settings.options(tmp_path, environ) == ["--no-index"]
