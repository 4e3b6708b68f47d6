"""Workers that have imported the frameworks, each of which takes seconds for that, and a reader of files that has."""

import os
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from runner.client.reading import process as reading
from runner.testing import Fleet, RedisServer

from ...conftest import WITHOUT
from ...support.fork_server import IMPORTED, ForkServer

FRAMEWORKS = (
    "anthropic.resources.messages,pydantic_ai.models.openai,agents,langchain.agents,langchain_openai,langgraph.prebuilt,agno.agent,strands,"
    "google.adk.models.lite_llm,litellm,llama_index.core.agent.workflow,llama_index.llms.openai_like,"
    "autogen_agentchat.teams"
)


@pytest.fixture
def fleet(server: RedisServer) -> Iterator[Fleet]:
    """As everywhere, but for what its processes are forked from."""
    with Fleet(server.url, settings={**WITHOUT, IMPORTED: FRAMEWORKS}) as one:
        yield one
        one.end()
        print(one.log()[-4000:])


@pytest.fixture(autouse=True, scope="module")
def files_are_read_by_forks(processes_are_forked: ForkServer) -> Iterator[None]:
    """What forks a process for each file that is submitted from here has imported the frameworks, too."""

    def popen(words: Any, **options: Any) -> "subprocess.Popen[Any]":
        return processes_are_forked.popen(words, **{**options, "env": {**os.environ, IMPORTED: FRAMEWORKS}})

    with pytest.MonkeyPatch.context() as patch:
        reading._shared.close()
        patch.setattr(reading, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
        yield
        reading._shared.close()
