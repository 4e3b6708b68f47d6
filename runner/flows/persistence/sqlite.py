"""States of flows in an SQLite file."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from runner.flows.feedback import PendingFeedbackContext
from runner.flows.persistence.base import FlowPersistence

DEFAULT_PLACE = "./.checkpoints/flow_states.db"


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
        if not Path(self.db_path).exists():
            return None
        with self._open() as connection:
            row = connection.execute(
                "SELECT state_json FROM flow_states WHERE flow_uuid = ? ORDER BY id DESC LIMIT 1", (flow_uuid,)
            ).fetchone()
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
        if not Path(self.db_path).exists():
            return None
        with self._open() as connection:
            row = connection.execute(
                "SELECT state_json, context_json FROM pending_feedback WHERE flow_uuid = ?", (flow_uuid,)
            ).fetchone()
        return (json.loads(row[0]), PendingFeedbackContext.from_dict(json.loads(row[1]))) if row else None

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Remove that row."""
        if Path(self.db_path).exists():
            with self._open() as connection:
                connection.execute("DELETE FROM pending_feedback WHERE flow_uuid = ?", (flow_uuid,))

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
