"""What tools put into LangGraph's store in memory."""

import contextlib
import json
import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from runner.adapters.frameworks.framework import AgentFramework
from runner.core import encoding
from runner.core.encoding import NotSerializable
from runner.journal.context_state import Contents

_of_stores: "weakref.WeakKeyDictionary[Any, StoredItems]" = weakref.WeakKeyDictionary()


def in_memory(store: Any) -> bool:
    """Whether this is a store whose items are in this process only."""
    return isinstance(store, AgentFramework.loaded("langgraph.store.memory", "InMemoryStore"))


def store_of_graph() -> Any:
    """The store of the graph that runs here, as `get_store` gives it to a tool; None where there is none."""
    config = sys.modules.get("langgraph.config")
    with contextlib.suppress(RuntimeError, KeyError, AttributeError):
        return config.get_store() if config is not None else None
    return None


class StoredItems(Contents):
    """The items of one store, each as JSON with its vectors."""

    def __init__(self, store: Any) -> None:
        self._store = weakref.ref(store)
        self._read: dict[str, tuple[str, dict[str, Any], str]] = {}  # with their vectors, which are most of them

    @classmethod
    def of(cls, store: Any) -> "StoredItems":
        """The same object for the same store."""
        found = _of_stores.get(store)
        if found is None:
            found = _of_stores[store] = cls(store)
        return found

    def read(self, name_of: encoding.NameOf) -> dict[str, Any]:
        """All items by namespace and key; one that cannot be stored stands for itself."""
        found = dict[str, Any]()
        last, read = self._read, dict[str, tuple[str, dict[str, Any], str]]()
        store: Any = self._store()
        for namespace, items in list(store._data.items()) if store is not None else ():
            vectors = store._vectors.get(namespace, {})
            for key, item in list(items.items()):
                name, of = json.dumps([*namespace, key]), dict(vectors.get(key, {}))
                about = [item.value, item.created_at, item.updated_at]
                try:
                    plain = json.dumps(encoding.encode(about, name_of))
                    known = last.get(name)
                    if known is None or known[0] != plain or not _are_same(known[1], of):
                        known = plain, of, json.dumps(encoding.encode([*about, of], name_of))
                    read[name] = known
                    found[name] = known[2]
                except NotSerializable:
                    found[name] = item
        self._read = read
        return found

    def write(self, contents: Mapping[str, Any], name_of: encoding.NameOf, find: encoding.Find) -> None:
        """Put into the store what is other there, and take away what is not in the contents. Raises `BadInput`."""
        there = self.read(name_of)
        store: Any = self._store()
        item_of: Any = AgentFramework.loaded("langgraph.store.base", "Item")
        changed = {name: said for name, said in contents.items() if there.get(name) != said}
        decoded = {name: encoding.decode(data, types, find) for name, (data, types) in _parsed(changed)}
        for name in there.keys() - contents.keys():
            *namespace, key = json.loads(name)
            store._data[tuple(namespace)].pop(key)
            store._vectors[tuple(namespace)].pop(key, None)
        for name, (value, created, updated, vectors) in decoded.items():
            *path, key = json.loads(name)
            namespace = tuple(path)
            times = {"created_at": created, "updated_at": updated}
            store._data[namespace][key] = item_of(value=value, key=key, namespace=namespace, **times)
            store._vectors[namespace].pop(key, None)
            if vectors:
                store._vectors[namespace][key].update(vectors)


def _are_same(known: Mapping[str, Any], vectors: Mapping[str, Any]) -> bool:
    """Whether these are the same objects: none is changed in place."""
    return known.keys() == vectors.keys() and all(known[path] is one for path, one in vectors.items())


def _parsed(contents: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    return ((name, json.loads(said)) for name, said in contents.items())
