"""The parts of the bridge to the real CrewAI that need no CrewAI. The whole, with it: ops/compat/crewai_provider.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from runner.adapters.crewai import redis_provider
from runner.adapters.crewai.redis_provider import crewai_checkpoint_file, crewai_provider
from runner.core.errors import UsageError
from runner.providers import CheckpointNotFound, RedisProvider


def test_keys_of_model_clients_are_left_out() -> None:
    state = {
        "llm": {
            "api_key": "sk-1",
            "max_tokens": 5,
            "token": "t",
            "aws_secret_access_key": 'a"b\\',
            "openai_apikey": "x",
        },
        "headers": {"Authorization": "Bearer x", "auth_token": "y", "password": "p"},
        "text": 'he said: "api_key": "sk-2"',
        "total_tokens": 7,
        "secretary": {"name": "not a string, and left alone"},
    }
    assert json.loads(redis_provider.without_secrets(json.dumps(state, indent=1))) == {
        "llm": {"api_key": None, "max_tokens": 5, "token": None, "aws_secret_access_key": None, "openai_apikey": None},
        "headers": {"Authorization": None, "auth_token": None, "password": None},
        "text": 'he said: "api_key": "sk-2"',
        "total_tokens": 7,
        "secretary": {"name": "not a string, and left alone"},
    }


def test_a_checkpoint_is_put_into_a_file_that_tells_its_id_and_its_parent(server: Any) -> None:
    provider, location = RedisProvider(), f"{server.url}?prefix=run"
    first = provider.checkpoint('{"i": 1}', location)
    second = provider.checkpoint('{"i": 2}', location, parent_id=provider.extract_id(first), branch="fork/a")
    for own, parent in ((first, "none"), (second, provider.extract_id(first))):
        with crewai_checkpoint_file(own) as path:
            assert Path(path).name == f"{provider.extract_id(own)}_p-{parent}.json"
            assert Path(path).read_text() == provider.from_checkpoint(own)
        assert not Path(path).parent.exists()
    provider.prune(location, 0)
    with pytest.raises(CheckpointNotFound), crewai_checkpoint_file(first):
        pass


def test_without_crewai_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name.partition('.')[0]!r}")

    monkeypatch.setattr(redis_provider, "import_module", missing)
    redis_provider._kind.cache_clear()
    with pytest.raises(UsageError, match="crewai is not installed here, or has no checkpoints: No module named"):
        crewai_provider()
    redis_provider._kind.cache_clear()


def test_the_check_with_the_real_one_is_where_it_is_said(pytestconfig: pytest.Config) -> None:
    root = Path(pytestconfig.rootpath)
    assert (root / "ops/compat/crewai_provider.py").is_file()
    assert "ops/compat/crewai_provider.py" in (root / "CONTRIBUTING.md").read_text()
