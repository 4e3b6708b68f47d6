"""``@persist``: saves a flow's state after each method; ``kickoff(inputs={"id": ...})`` starts from it.

Only the state is saved: all methods run again. To resume with finished methods, write checkpoints. On the fleet the run
keeps the state itself, and ``@persist`` does nothing.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from runner.core.errors import TaskError, one_line
from runner.flows import state as states
from runner.flows.persistence.base import FlowPersistence
from runner.flows.persistence.sqlite import SQLiteFlowPersistence

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_runner_persist"


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
    """Return the persistence of a flow or its class: its own option, else that of its class, else that of its methods
    if they have only one.
    """
    if flow.persistence is not None:
        found: FlowPersistence = flow.persistence
        return found
    methods = [getattr(flow, name, None) for name in flow.flow_definition().methods]
    wishes = [getattr(one, _MARK, None) for one in (flow if isinstance(flow, type) else type(flow), *methods)]
    places = [wish.persistence for wish in wishes if wish is not None]
    return places[0] if places and all(place == places[0] for place in places) else None
