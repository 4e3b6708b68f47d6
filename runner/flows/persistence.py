"""``@persist``: saves a flow's state after each method; ``kickoff(inputs={"id": ...})`` starts from it.

Only the state is saved: all methods run again. To resume with finished methods, write checkpoints. On the fleet the run
keeps the state itself, and ``@persist`` does nothing.
"""

import contextlib
import json
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from runner.core.errors import TaskError, one_line
from runner.flows import state as states
from runner.flows.feedback import PendingFeedbackContext

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_runner_persist"

DEFAULT_PLACE = "./.checkpoints/flow_states.db"


class FlowPersistence(BaseModel, ABC):
    """Saves states of flows; the newest of each id can be loaded."""

    @abstractmethod
    def save_state(self, flow_uuid: str, method_name: str, state_data: Mapping[str, Any] | BaseModel) -> None:
        """Save a state after a method."""

    @abstractmethod
    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the newest state of this id; None if there is none."""

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: Mapping[str, Any] | BaseModel
    ) -> None:
        """Save a waiting flow in place of its earlier states. By default only its state is saved."""
        self.save_state(flow_uuid, context.method_name, state_data)

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state and the question of a waiting flow; None if no flow of this id waits."""

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """The question was answered."""


class SQLiteFlowPersistence(FlowPersistence):
    """Saves states in an SQLite file, in the table ``flow_states``."""

    db_path: str = DEFAULT_PLACE

    def __init__(self, db_path: str | Path | None = None, **more: Any) -> None:
        super().__init__(**{"db_path": str(db_path or DEFAULT_PLACE), **more})

    def init_db(self) -> None:
        """Create the file and its tables."""
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
        """Return the newest row."""
        row = self._row("SELECT state_json FROM flow_states WHERE flow_uuid = ? ORDER BY id DESC LIMIT 1", flow_uuid)
        return json.loads(row[0]) if row else None

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: Mapping[str, Any] | BaseModel
    ) -> None:
        """Save the state, and the question in the table ``pending_feedback``: one row for each flow."""
        self.save_state(flow_uuid, context.method_name, state_data)
        state, asked = json.dumps(to_jsonable_python(state_data)), json.dumps(context.to_dict())
        with self._open() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO pending_feedback (flow_uuid, context_json, state_json, created_at) "
                "VALUES (?, ?, ?, ?)",
                (flow_uuid, asked, state, datetime.now(UTC).isoformat()),
            )

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """That row."""
        row = self._row("SELECT state_json, context_json FROM pending_feedback WHERE flow_uuid = ?", flow_uuid)
        return (json.loads(row[0]), PendingFeedbackContext.from_dict(json.loads(row[1]))) if row else None

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Remove that row."""
        if Path(self.db_path).exists():
            with self._open() as connection:
                connection.execute("DELETE FROM pending_feedback WHERE flow_uuid = ?", (flow_uuid,))

    def _row(self, query: str, flow_uuid: str) -> Any:
        if not Path(self.db_path).exists():
            return None
        with self._open() as connection:
            return connection.execute(query, (flow_uuid,)).fetchone()

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        Path(self.db_path).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(self.db_path, timeout=30)) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL")  # who reads does not wait for who writes
            connection.execute(
                "CREATE TABLE IF NOT EXISTS flow_states (id INTEGER PRIMARY KEY AUTOINCREMENT, "
                "flow_uuid TEXT NOT NULL, method_name TEXT NOT NULL, timestamp DATETIME NOT NULL, "
                "state_json TEXT NOT NULL)"
            )
            connection.execute("CREATE INDEX IF NOT EXISTS idx_flow_states_uuid ON flow_states(flow_uuid)")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS pending_feedback (id INTEGER PRIMARY KEY AUTOINCREMENT, "
                "flow_uuid TEXT NOT NULL UNIQUE, context_json TEXT NOT NULL, state_json TEXT NOT NULL, "
                "created_at DATETIME NOT NULL)"
            )
            yield connection


class PersistenceFailed(TaskError, RuntimeError):
    """A method is done, but the state of its flow could not be saved."""


class _Wish(NamedTuple):
    persistence: FlowPersistence
    verbose: bool


def persist(persistence: FlowPersistence | None = None, verbose: bool = False) -> Callable[[F], F]:
    """Save the state after this method; on a flow class, after each method.

    ``persistence`` defaults to an SQLite file, ``./.checkpoints/flow_states.db``.
    """
    wish = _Wish(persistence or SQLiteFlowPersistence(), verbose)

    def decorate(target: F) -> F:
        setattr(target, _MARK, wish)
        return target

    return decorate


def keep(flow: Any, method: str) -> None:
    """Save the state after a method, if there is a persistence. Raises `PersistenceFailed`."""
    wish: _Wish | None = getattr(getattr(flow, method, None), _MARK, None) or getattr(type(flow), _MARK, None)
    if wish is None:
        return
    if wish.verbose:
        logger.info("Saving flow state of %s after %s", flow.flow_id, method)
    try:
        wish.persistence.save_state(flow.flow_id, method, states.dump(flow.committed_state, flow.leave_out))
    except Exception as error:  # whatever the place it is kept in raises
        raise PersistenceFailed(
            f"the state of flow {flow.flow_name} cannot be kept after {method}: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from error


def take_up(flow: Any, inputs: Mapping[str, Any], source: str | None) -> None:
    """Start the flow with the saved state of the id among its inputs.

    With a ``source``, start with the state of that id, under the flow's own id. If nothing was saved, nothing changes.
    """
    wanted = source or inputs.get("id")
    persistence = persistence_of(flow)
    stored = persistence.load_state(str(wanted)) if persistence is not None and wanted else None
    if stored is not None:
        own = flow.flow_id if source else wanted
        states.load(flow.committed_state, {**stored, "id": str(inputs.get("id") or own)})


def persistence_of(flow: Any) -> FlowPersistence | None:
    """Return the persistence of a flow or its class: its own, else its class's, else the only one of its methods."""
    if flow.persistence is not None:
        found: FlowPersistence = flow.persistence
        return found
    methods = [getattr(flow, name, None) for name in flow.flow_definition().methods]
    wishes = [getattr(one, _MARK, None) for one in (flow if isinstance(flow, type) else type(flow), *methods)]
    places = [wish.persistence for wish in wishes if wish is not None]
    return places[0] if places and all(place == places[0] for place in places) else None
