"""What the scripts compute without the store is what Python computes, of whatever they are given."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from runner.core.ledger import AccountKey, Counters
from runner.core.plan import THREAD, queue_for
from runner.providers.memory.account import doubtful
from runner.providers.redis import keys, scripts
from runner.testing import RedisServer

from .plans import NAMES

Lua = Callable[..., Any]

KINDS = [
    *(AccountKey("step"), AccountKey("model", "A", "gpt"), AccountKey("model", "B", "gpt")),
    *(AccountKey("tool", model="x"), AccountKey("tool")),
]
TOOLS_TOO = AccountKey("tool")
counts = st.dictionaries(st.sampled_from(KINDS), st.integers(1, 3))
few = settings(settings.get_profile("providers"), max_examples=150)


@pytest.fixture(scope="module")
def lua(shared_server: RedisServer) -> Iterator[Lua]:
    """Gives what an expression is of these texts, as JSON."""
    with Redis.from_url(shared_server.url, decode_responses=True) as redis:

        def evaluate(expression: str, **texts: str) -> Any:
            uses = "now queued emit send is_active close account release"
            slots = " ".join(f"{name}:text" for name in texts)
            text = f"-- An example.\n--\n-- ARGV {slots}\n-- USES {uses}\nreturn cjson.encode({{{expression}}})"
            return json.loads(scripts.LuaScript("example", text)(redis, **texts))

        yield evaluate


def text(entries: dict[AccountKey, int], unsure: dict[AccountKey, int] | None = None) -> str:
    """As entries of the account."""
    return json.dumps([[*key[:3], many, (unsure or {}).get(key, 0)] for key, many in entries.items()])


def read(lines: Any) -> dict[AccountKey, int]:
    found = {AccountKey(*line[:3]): line[3] for line in lines}
    assert len(found) == len(lines)
    assert 0 not in found.values(), "what is none is not named"
    return found


@few
@given(
    begun=counts,
    out=st.dictionaries(st.sampled_from(KINDS[:4]), st.integers(0, 3)),
    unsure=counts,
    tools_too=st.booleans(),
)
def test_what_is_in_doubt(lua: Lua, begun: Any, out: Any, unsure: Any, tools_too: bool) -> None:
    """Of what was noted, and of what its process said that it had sent: of tools only where it says that it does."""
    out = {TOOLS_TOO: 0, **out} if tools_too else {key: n for key, n in out.items() if n or key.kind != "tool"}
    left = Counters(out)
    left.tokens.update({key: unsure.get(key, 0) for key in out})
    due = {key: many for key, many in doubtful(Counters(begun), left).items() if many > 0}
    found, known = lua("doubtful(cjson.decode(begun), cjson.decode(out))", begun=text(begun), out=text(out, unsure))
    assert read(found) == due
    assert read(known) == {key: max(begun.get(key, 0), due.get(key, 0)) for key in begun.keys() | due.keys()}


@few
@given(begun=counts, reserved=st.sampled_from([None, *KINDS[:4]]))
def test_what_is_noted_but_the_note_for_the_next_step(lua: Lua, begun: Any, reserved: AccountKey | None) -> None:
    due = Counters(begun).beyond(Counters([reserved])) if reserved else begun
    but = "" if reserved is None else "1" if reserved.kind == "step" else json.dumps(reserved[:3])
    (found,) = lua('noted(begun, but ~= "" and but)', begun=text(begun) if begun else "", but=but) or [[]]
    assert read(found) == {key: many for key, many in due.items() if many > 0}


@pytest.mark.parametrize("begun", ["", "text", "[1]", '[["model"]]'])
def test_a_note_that_cannot_be_read_counts_for_nothing(lua: Lua, begun: str) -> None:
    assert lua("#(noted(begun) or {})", begun=begun) == [0]


@pytest.mark.parametrize("branch", ["main", "fork/1", "of a long name " * 3])
def test_how_the_index_of_sent_jobs_names_one(lua: Lua, branch: str) -> None:
    for task in NAMES:
        assert lua("queued_ref(id, name, key)", id="r-1", name=branch, key=task) == [
            keys.queued_ref("r-1", branch, task)
        ]


@pytest.mark.parametrize("queue", ["jobs", "runner:p6:jobs", "a:runner:p6:jobs"])
def test_which_queue_a_task_has(lua: Lua, queue: str) -> None:
    of = partial(lua, "queue_for(queue, pool)", queue=queue)
    assert of(pool="") == [queue_for(queue, "")]
    assert of(pool=THREAD) == [queue_for(queue, THREAD)]
