"""Branches of plans that grow: the state that their tasks share, and the order of their commits."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runner.core.errors import OutputGone
from runner.core.plan.expansion import Committed, Shared
from runner.core.stored_output import unpack_output
from runner.providers.redis import history
from runner.providers.redis import keys as names
from runner.providers.redis.connection import Client

MARK = "="  #: what the texts' names begin with, among the fields of their hash


class GrowingBranch:
    """One branch of a growing plan, for reading."""

    def __init__(self, client: Client, run_id: str, name: str) -> None:
        self._client, self._home = client, names.home_of(client)
        self._run_id = run_id
        self._name = name

    def initial_state(self) -> Mapping[str, Any]:
        """What the adapter said of the run when it was submitted."""
        found = self._client.hget(names.run_key(self._run_id, self._home), "beginning")  # stored under this name
        beginning: Mapping[str, Any] = json.loads(found or "{}")
        return beginning

    def shared(self) -> Shared:
        """Return the texts as they stand now."""
        key = names.key("shared_key", branch_key=names.branch_key(self._run_id, self._name, self._home))
        found: dict[str, str] = self._client.hgetall(key)
        texts = {name.removeprefix(MARK): text for name, text in found.items() if name.startswith(MARK)}
        return Shared(found.get("version", ""), texts)

    def records(self, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Stored outputs by key, each from the nearest branch that has it."""
        return history.stored_outputs(self._client, self._run_id, self._name, list(keys))

    def history(self, upto: int | None = None, *, forget_lost: bool = False) -> list[Committed]:
        """All that was committed on the branch and, before it left them, on its parents, in order.

        Raises `OutputGone` where the store has not any more what was committed; ``forget_lost``: not for commits of the
        branch itself, which count as none, as when it resumes.
        """
        lines = history.with_commits(self._client, self._run_id, self._name)
        limit = float("inf") if upto is None else float(upto)
        limits = []
        for line in lines:
            limits.append(limit)
            limit = min(limit, float(line.fields.get("parent_seq", 0)))
        found: list[Committed] = []
        for line, upto_here in reversed(list(zip(lines, limits, strict=True))):
            texts, log = line.answer
            lost = [entry[1] for entry in map(json.loads, log) if entry[0] <= upto_here and entry[1] not in texts]
            if lost and not (forget_lost and line is lines[0]):
                raise OutputGone(lost)
            stored = {task: unpack_output(text) for task, text in texts.items()}
            edits = {task: one for task, one in stored.items() if "edited" in one}
            laid = json.loads(line.fields.get("laid", "{}"))
            if edits or laid:
                found.append(Committed("", inputs=laid, edits=edits))
            own = [(one["seq"], task, one) for task, one in stored.items() if task not in edits]
            found += [
                Committed(task, one) for seq, task, one in sorted(own, key=lambda each: each[0]) if seq <= upto_here
            ]
        return found
