"""What tools put into LangGraph's store in memory is recorded with their uses, and put into another one."""

import json
from typing import Any

import pytest

from runner.journal.context_state import Snapshot, puts

from ...support.later import Later

memory = Later("langgraph.store.memory")
pytestmark = pytest.mark.slow  # importing it opens a socket, and takes half a second


def name_of(of: type) -> str:
    return of.__name__


def store() -> Any:
    """As the code around the tools makes it, in each process."""
    found = memory.InMemoryStore(index={"dims": 2, "embed": lambda texts: [[float(len(one)), 1.0] for one in texts]})
    for key in ("kept", "changed", "deleted"):
        found.put(("a",), key, {"text": key})
    return found


def items(of: Any) -> list[Any]:
    return [(one.namespace, one.key, one.value, one.score) for one in of.search((), query="text", limit=100)]


def test_what_was_put_changed_and_deleted_is_so_in_another_store() -> None:
    from runner.adapters.frameworks.langgraph_store import StoredItems

    # Given a store in which a tool puts, changes and deletes items
    first = store()
    before = Snapshot(StoredItems.of(first), name_of)
    first.put(("b", "c"), "new", {"text": "new", "parts": [1, {"two": 2}]})
    first.put(("a",), "changed", {"text": "anew"})
    first.get(("a",), "kept").value["more"] = "in place"
    first.delete(("a",), "deleted")
    changes = json.loads(json.dumps(before.changes(Snapshot(StoredItems.of(first), name_of))))
    # When these are restored in the store of another process
    other = store()
    contents = StoredItems.of(other).read(name_of)
    for put in puts(changes, contents, lambda _: None):
        put()
    StoredItems.of(other).write(contents, name_of, lambda _: None)
    # Then it has the same items, found by the same vectors, and takes others
    assert items(other) == items(first)
    assert other.get(("b", "c"), "new").created_at == first.get(("b", "c"), "new").created_at
    other.put(("b", "c"), "more", {"text": "more"})
    assert other.get(("b", "c"), "more").value == {"text": "more"}


def test_only_what_is_new_is_read_again_with_its_vectors() -> None:
    """A vector is 30 KB of JSON, and a store is read twice for each use of a tool."""
    from runner.adapters.frameworks.langgraph_store import StoredItems

    one = store()
    first = StoredItems.of(one).read(name_of)
    one.put(("a",), "changed", {"text": "anew"})
    one.get(("a",), "kept").value["more"] = "in place"
    again = StoredItems.of(one).read(name_of)
    assert [json.loads(name)[-1] for name, said in again.items() if said is not first[name]] == ["kept", "changed"]
    assert "in place" in again[json.dumps(["a", "kept"])]


def test_what_cannot_be_stored_is_recorded_only_where_nothing_changed_it() -> None:
    from runner.adapters.frameworks.langgraph_store import StoredItems
    from runner.core.encoding import NotSerializable

    # Given a store that has an item with a client in it
    one = store()
    one.put(("a",), "client", {"client": object()}, index=False)
    before = Snapshot(StoredItems.of(one), name_of)
    # When a tool puts another item there, then this is recorded
    one.put(("a",), "more", {"text": "more"})
    assert before.changes(Snapshot(StoredItems.of(one), name_of))
    # But not if the tool puts another client there
    one.put(("a",), "other", {"client": object()}, index=False)
    with pytest.raises(NotSerializable):
        before.changes(Snapshot(StoredItems.of(one), name_of))
