"""``@persist``: a flow's state is kept by its id when a method is done; ``kickoff(inputs={"id": ...})`` begins with it.

It is the state alone: the methods run again. To go on with what was done, write checkpoints. On the fleet the run keeps
the state itself, and ``@persist`` does nothing.
"""

import contextlib
import json
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from runner.errors import TaskError, said
from runner.flow import state as states

if TYPE_CHECKING:
    from runner.flow.flow import Flow

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_PLACE = "./.checkpoints/flow_states.db"
_MARK = "_runner_persist"


class PersistenceFailed(TaskError, RuntimeError):
    """A method is done, and the state of its flow could not be kept."""


class FlowPersistence(BaseModel, ABC):
    """Where states of flows are kept, the newest of each id."""

    @abstractmethod
    def save_state(self, flow_uuid: str, method_name: str, state_data: Mapping[str, Any] | BaseModel) -> None:
        """Keep a state, as it is after a method."""

    @abstractmethod
    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """The newest state of that id; None if there is none."""


class SQLiteFlowPersistence(FlowPersistence):
    """Keeps states in an SQLite file, in CrewAI's table."""

    db_path: str = DEFAULT_PLACE

    def __init__(self, db_path: str | Path | None = None, **more: Any) -> None:
        super().__init__(**{"db_path": str(db_path or DEFAULT_PLACE), **more})

    def init_db(self) -> None:
        """Make the file and its table."""
        with self._open():
            pass

    def save_state(self, flow_uuid: str, method_name: str, state_data: Mapping[str, Any] | BaseModel) -> None:
        """Add a row."""
        text = json.dumps(to_jsonable_python(state_data), ensure_ascii=False)
        with self._open() as connection:
            connection.execute(
                "INSERT INTO flow_states (flow_uuid, method_name, timestamp, state_json) VALUES (?, ?, ?, ?)",
                (flow_uuid, method_name, datetime.now(UTC).isoformat(), text),
            )

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """The newest row."""
        if not Path(self.db_path).exists():
            return None
        with self._open() as connection:
            row = connection.execute(
                "SELECT state_json FROM flow_states WHERE flow_uuid = ? ORDER BY id DESC LIMIT 1", (flow_uuid,)
            ).fetchone()
        found: dict[str, Any] | None = json.loads(row[0]) if row else None
        return found

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        Path(self.db_path).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(self.db_path, timeout=30)) as connection, connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS flow_states (id INTEGER PRIMARY KEY AUTOINCREMENT, "
                "flow_uuid TEXT NOT NULL, method_name TEXT NOT NULL, timestamp DATETIME NOT NULL, "
                "state_json TEXT NOT NULL)"
            )
            connection.execute("CREATE INDEX IF NOT EXISTS idx_flow_states_uuid ON flow_states(flow_uuid)")
            yield connection


class _Wish(NamedTuple):
    persistence: FlowPersistence
    verbose: bool


def persist(persistence: FlowPersistence | None = None, verbose: bool = False) -> Callable[[F], F]:
    """Keep the state after this method; on a class of flows, after each of its methods.

    Left out, ``persistence`` is an SQLite file, ``./.checkpoints/flow_states.db``.
    """
    wish = _Wish(persistence or SQLiteFlowPersistence(), verbose)

    def decorate(target: F) -> F:
        setattr(target, _MARK, wish)
        return target

    return decorate


def keep(flow: "Flow[Any]", method: str) -> None:
    """A method is done: keep the state, if that is wished. Raises `PersistenceFailed`."""
    wish: _Wish | None = getattr(getattr(flow, method, None), _MARK, None) or getattr(type(flow), _MARK, None)
    if wish is None:
        return
    if wish.verbose:
        logger.info("Saving flow state of %s after %s", flow.flow_id, method)
    try:
        wish.persistence.save_state(flow.flow_id, method, states.dump(flow.committed_state, flow.leave_out))
    except Exception as error:  # whatever the place it is kept in raises
        raise PersistenceFailed(
            f"the state of flow {flow.flow_name} cannot be kept after {method}: {type(error).__name__}: {said(error)}"
        ) from error


def take_up(flow: "Flow[Any]", inputs: Mapping[str, Any], source: str | None) -> None:
    """The flow begins with the state that was kept under the id among its inputs.

    With a ``source``, it begins with that one's, under that id or one of its own. What was never kept changes nothing.
    """
    wanted = source or inputs.get("id")
    persistence = persistence_of(flow)
    stored = persistence.load_state(str(wanted)) if persistence is not None and wanted else None
    if stored is not None:
        own = flow.flow_id if source else wanted
        states.load(flow.committed_state, {**stored, "id": str(inputs.get("id") or own)})


def persistence_of(flow: "Flow[Any]") -> FlowPersistence | None:
    """Where its state is looked for: its own option, its class's, or that of its methods if they have one only."""
    if flow.persistence is not None:
        found: FlowPersistence = flow.persistence
        return found
    methods = [getattr(flow, name, None) for name in flow.flow_definition().methods]
    wishes = [getattr(one, _MARK, None) for one in (type(flow), *methods)]
    places = [wish.persistence for wish in wishes if wish is not None]
    return places[0] if places and all(place == places[0] for place in places) else None
