"""Which provider a location has, by its scheme."""

from pathlib import Path

import pytest

from runner import CheckpointConfig
from runner.core.errors import BadCheckpoint
from runner.providers import JsonProvider
from runner.providers.detect import detect_provider


def test_a_scheme_that_no_installed_package_knows_is_refused_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadCheckpoint, match=r"no provider is installed for locations that begin with s3://"):
        detect_provider("s3://:secret@bucket/runs")
    with pytest.raises(ValueError, match="no provider is installed"):
        CheckpointConfig(location="s3://bucket/runs")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_named_like_one_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "runs").mkdir(parents=True)
    assert isinstance(detect_provider("s3://runs"), JsonProvider)
