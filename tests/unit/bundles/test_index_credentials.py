"""No password of a package index is in a bundle."""

from pathlib import Path

import pytest

from runner.bundles.bundle import contents, pack
from runner.bundles.target import parse_target
from runner.core.errors import BadCrew

INDEX = "[[tool.uv.index]]\nurl = 'https://me:{}@host/simple'\n"


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "uv.toml", "uv.lock", "requirements-dev.txt", "sub/requirements.txt", "pip.conf"]
)
def test_a_password_of_an_index_is_in_no_bundle(name: str, tmp_path: Path) -> None:
    # Given a file that names an index, though nothing is asked for in it
    file, crew = tmp_path / name, tmp_path / "crew.py"
    file.parent.mkdir(exist_ok=True)
    crew.write_text("")
    file.write_text(INDEX.format("hunter22"))
    # Then it is refused, without saying the password
    with pytest.raises(BadCrew, match="UV_INDEX_URL") as refused:
        pack(parse_target(str(crew)))
    assert str(refused.value).startswith(name)
    assert "hunter22" not in str(refused.value)
    # And one that stands for a variable is not
    file.write_text(INDEX.format("${PASSWORD}"))
    assert name in dict(contents(pack(parse_target(str(crew)))))
