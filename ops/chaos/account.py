"""The reckoning: what the model server counted against what the ledger says, and what the tools did."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scene import CALLS, TOOLS, Scene, label_of

from runner.client import RunResult


@dataclass
class Account:
    """What several runs came to, added up, and what is wrong with it."""

    runs: int = 0
    completed: int = 0
    asked: int = 0  #: requests that the model server was paid for
    paid: int = 0
    in_doubt: int = 0
    replayed: int = 0
    repeated: int = 0  #: requests that came again, with the same body
    unheard: int = 0  #: calls in doubt that never reached the server
    tools: int = 0
    tools_again: int = 0
    tools_in_doubt: int = 0
    recoveries: int = 0
    tokens: tuple[int, int] = (0, 0)
    wrong: list[str] = field(default_factory=list)


def models_of(ledger: Mapping[str, Any]) -> dict[str, int]:
    """What of a ledger is calls of models, and their tokens."""
    rows = ledger["by"]
    found = {name: sum(row[name] for row in rows) for name in ("calls", "replayed", "in_doubt")}
    return found | {
        name: sum(int(row.get(name) or 0) for row in rows) for name in ("prompt_tokens", "completion_tokens")
    }


def reckon(scene: Scene, results: Mapping[str, RunResult], killed: int) -> Account:
    """Hold the server's count against the runs' ledgers. ``results`` are by the label that the runs ask with.

    ``killed`` processes were at work: each has one call in flight at most.
    """
    account = Account(runs=len(results))
    requests = {label: [] for label in results}
    for request in scene.models.log:
        requests.setdefault(label_of(request), []).append(request)
    did = scene.tools()
    for label, result in results.items():
        _one(account, label, result, requests[label], {k: n for k, n in did.items() if k.startswith(f"tool {label}/")})
    account.asked = scene.models.paid
    if strange := [label for label in requests if label not in results]:
        account.wrong.append(f"requests of nobody: {strange}")
    if account.repeated > killed:
        account.wrong.append(f"{account.repeated} calls were made again, after {killed} processes were killed")
    return account


def _one(account: Account, label: str, result: RunResult, asked: list, did: Mapping[str, int]) -> None:
    ledger = models_of(result.ledger)
    bodies = Counter(request.digest for request in asked)
    again = sum(bodies.values()) - len(bodies)
    kept = {request.digest: request.usage for request in asked}
    tokens = [sum(usage[n] for usage in kept.values()) for n in range(2)]
    # A tool of an agent is in the account of tools, one that a plain function uses is a step of its own.
    tools_in_doubt = result.ledger["tools"]["in_doubt"] + result.ledger["in_doubt"] - ledger["in_doubt"]
    tools_again = sum(did.values()) - len(did)
    account.completed += result.status == "completed"
    account.paid += ledger["calls"]
    account.in_doubt += ledger["in_doubt"]
    account.replayed += ledger["replayed"]
    account.repeated += again
    account.unheard += ledger["calls"] + ledger["in_doubt"] - len(asked)
    account.tools += len(did)
    account.tools_again += tools_again
    account.tools_in_doubt += tools_in_doubt
    account.recoveries += result.recoveries
    account.tokens = (account.tokens[0] + ledger["prompt_tokens"], account.tokens[1] + ledger["completion_tokens"])
    for name, seen in {"first": 6, "second": 6, "third": 6}.items():
        if result.outputs.get(name) != f"{label}/{name} has seen {seen}":
            account.wrong.append(f"{label}: the task {name} gave {result.outputs.get(name)!r}")
    checks = {
        f"it is {result.status}: {result.error}": result.status == "completed",
        f"{len(bodies)} different calls, not {CALLS}": len(bodies) == CALLS,
        f"{ledger['calls']} calls paid in the ledger, not {CALLS}": ledger["calls"] == CALLS,
        f"{again} calls made again, {ledger['in_doubt']} in doubt": again <= ledger["in_doubt"],
        f"{len(asked)} requests, {ledger['calls']} + {ledger['in_doubt']} in the ledger": CALLS
        <= len(asked)
        <= ledger["calls"] + ledger["in_doubt"],
        f"tokens {ledger['prompt_tokens'], ledger['completion_tokens']}, the server told {tokens}": tokens
        == [ledger["prompt_tokens"], ledger["completion_tokens"]],
        f"{len(did)} different uses of tools, not {TOOLS}": len(did) == TOOLS,
        f"{tools_again} uses of tools repeated, {tools_in_doubt} in doubt": tools_again <= tools_in_doubt,
    }
    account.wrong += [f"{label} ({result.run_id}): {what}" for what, right in checks.items() if not right]
