"""Carries CrewAI's caches of tool results from task to task, stored beside outputs, if a crew or agent uses one."""

import json
from collections.abc import Iterator
from typing import Any

from crewai import Crew
from crewai.agents.cache.cache_handler import CacheHandler
from pydantic import BaseModel

from runner.core import encoding
from runner.engine.work import Work

MOST = 1024 * 1024  #: characters of what one task put into caches that are stored


class Caches:
    """The tool caches of one crew during a task: filled by earlier tasks, and watched for what this one adds."""

    def __init__(self, crew: Crew, work: Work) -> None:
        self._by_owner = dict(_caches(crew))
        self._added: list[list[Any]] = []
        if self._by_owner:
            for record in work.stored_with(work.plan.earlier(work.key)).values():
                for owner, tool, given, noted in record.get("cached") or []:
                    if owner in self._by_owner:
                        self._by_owner[owner].add(tool, given, noted.get("value", noted.get("text")))
        for owner, cache in self._by_owner.items():
            self._watch(owner, cache)

    @property
    def added(self) -> list[list[Any]]:
        """What this task cached, up to `MOST` characters: each time the cache, the tool, the arguments, the result."""
        kept, size = [], 0
        for one in self._added:
            size += len(json.dumps(one))
            if size <= MOST:
                kept.append(one)
        return kept

    def _watch(self, owner: str, cache: CacheHandler) -> None:
        add = cache.add

        def adding(tool: str, input: str, output: Any) -> None:
            add(tool, input, output)
            if not isinstance(output, BaseModel):  # what class it is of, only its tool knows
                self._added.append([owner, tool, input, _noted(output)])

        object.__setattr__(cache, "add", adding)


def _noted(output: Any) -> dict[str, Any]:
    """Return the result as JSON, or else as its text."""
    try:
        data, types = encoding.encode(output, lambda _: None)
    except encoding.NotSerializable:
        return {"text": str(output)}
    return {"text": str(output)} if types else {"value": data}


def _caches(crew: Crew) -> Iterator[tuple[str, CacheHandler]]:
    """Yield each cache with its owner: the crew, or the n-th agent."""
    shared = getattr(crew, "_cache_handler", None)
    if crew.cache and shared is not None:
        yield "crew", shared
    for number, agent in enumerate(crew.agents):
        cache = agent.tools_handler.cache if agent.tools_handler is not None else None
        if cache is not None and cache is not shared:
            yield f"agent {number}", cache
