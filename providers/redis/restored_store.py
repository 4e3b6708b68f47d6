"""Detects a store that was restored to an earlier state, and reports and counts the acknowledged writes it lost."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator

from runner.journal.acknowledged_writes import Acknowledged
from runner.providers.redis import keys, scripts
from runner.providers.redis.connection import Client
from runner.providers.redis.outages import not_now

log = logging.getLogger(__name__)

AT_ONCE = 200  #: claims that are looked at in one round trip


class LostWrites:
    """Compares what a worker was told with what the store has. What is missing counts once in each of its histories."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._gone: set[tuple[str, int]] = set()

    def __call__(self, client: Client, remembered: Callable[[], Iterable[Acknowledged]]) -> None:
        """Look at all that is remembered, and log what was found. Raises `NotNow` if the store refuses for now."""
        told = [claim for claim in remembered() if (claim.ref, claim.token) not in self._gone]
        by_task: dict[str, list[Acknowledged]] = {}
        for claim in told:
            by_task.setdefault(claim.ref, []).append(claim)
        steps, forgotten, gone, unclear = 0, set[str](), set[str](), list[Acknowledged]()
        known, still = set[str](), list[Acknowledged]()
        for again in (False, True):
            if again:  # what else was forgotten of a run tells; and that what was under way still is
                known = {keys.unref(ref)[0] for ref in forgotten}
                still = [claim for claim in remembered() if claim.begun] if unclear else []
                told = [claim for claim in unclear if _run_of(claim) in known or claim in still]
            for claim, (verdict, *found) in self._look(client, told, by_task, known, still):
                if verdict == "unclear":
                    unclear.append(claim)
                elif verdict == "gone":
                    gone.add(_run_of(claim))
                    self._gone.add((claim.ref, claim.token))
                elif verdict == "forgotten":
                    steps += int(found[0])
                    forgotten.add(claim.ref)
        if forgotten or gone:
            log.error(
                "the store was restored to an earlier state and lost what it had acked of %d task(s) (%s), %d step(s): "
                "they run again, and count as in doubt; %d run(s) are gone (%s)",
                len(forgotten), _some(forgotten), steps, len(gone), _some(gone),
            )  # fmt: skip

    def _look(
        self,
        client: Client,
        claims: list[Acknowledged],
        by_task: dict[str, list[Acknowledged]],
        known: set[str],
        still: list[Acknowledged],
    ) -> Iterator[tuple[Acknowledged, list[int | str]]]:
        script, home = scripts.load("find_lost_writes"), keys.home_of(client)
        scripts.preload_scripts(client, "find_lost_writes")
        for start in range(0, len(claims), AT_ONCE):
            some = claims[start : start + AT_ONCE]
            pipe = client.pipeline(transaction=False)
            for claim in some:
                slots = self.slots(
                    claim, by_task[claim.ref], home=home, rewound=_run_of(claim) in known, still=claim in still
                )
                pipe.execute_command("EVALSHA", script.sha, *script.arguments(slots))
            for claim, answer in zip(some, pipe.execute(raise_on_error=False), strict=True):
                if isinstance(answer, list):
                    yield claim, answer
                elif (later := not_now(answer)) is not None:
                    raise later

    def slots(
        self,
        claim: Acknowledged,
        later: Iterable[Acknowledged] = (),
        *,
        home: str = keys.HOME,
        rewound: bool = False,
        still: bool = False,
    ) -> dict[str, str | int]:
        """What the script is given to look at one claim, of a run of which the store is known to have ``rewound``.

        ``still`` where it was looked at before, and nothing has come to what is remembered of it since.
        ``later`` are the claims that this worker had on the task after that one.
        """
        after = [one for one in later if one.token > claim.token]
        again = {step for one in after for step in one.steps}
        run_id, name, task = keys.unref(claim.ref)
        branch = keys.branch_key(run_id, name, home)
        steps = [(step, json.loads(paid or "[]"), int(step in again)) for step, paid in claim.steps.items()]
        return {
            "home": home,
            "run": keys.run_key(run_id, home),
            "task": keys.key("task_key", branch_key=branch, name=task),
            "journal": keys.key("journal_key", branch_key=branch, name=task),
            "outputs": keys.key("outputs_key", branch_key=branch),
            "name": name,
            "key": task,
            "token": claim.token,
            "ended": claim.ended,
            "steps": json.dumps(steps),
            "recorded": claim.recorded,
            "begun": claim.begun,
            "worker": self._worker,
            "rewound": int(rewound),
            "still": int(still),
            "later": str(max((one.token for one in after), default="")),
        }


def _run_of(claim: Acknowledged) -> str:
    return keys.unref(claim.ref)[0]


def _some(names: set[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
