"""One side of a comparison: a branch in its current state, or a checkpoint. See `runner.core.diff`."""

from runner.core.diff import DONE, PENDING, Side, TaskSide
from runner.core.errors import NotFound
from runner.core.ledger import summed
from runner.core.plan.branching import meant
from runner.core.prices import NO_PRICES
from runner.llm.list_prices import configured
from runner.providers.records import Committed
from runner.providers.redis.runs import Runs


def side(runs: Runs, run_id: str, name: str) -> Side:
    """The branch ``name``, else the checkpoint whose id it is or begins. Raises `NotFound`."""
    run = runs.get(run_id)
    branch, upto, called = name, None, name
    if name not in runs.branches(run_id):
        there = runs.branches(run_id)
        if not meant((one.id for line in there for one in runs.checkpoints(run_id, line)), name):
            raise NotFound(
                f"run {run_id} has neither a branch nor a checkpoint {name!r}; branches: {', '.join(there)}; "
                f"`runner checkpoint list {run_id}` lists its checkpoints"
            )
        found = runs.find_checkpoint(run_id, name)
        branch, upto, called = found.branch, found.seq, f"{found.id} ({found.branch})"
    done = runs.committed(run_id, branch, upto)
    flying = {} if upto is not None else {one.task: one.state for one in runs.in_flight(run_id, branch)}
    known = [*sorted(done, key=lambda key: done[key].seq), *flying]
    keys = [task.key for task in runs.plan(run_id).shown(known)]
    return Side(
        called,
        run.inputs | runs.branch(run_id, branch).inputs,
        {
            key: _done(done[key]) if key in done else TaskSide(flying.get(key, PENDING))
            for key in [*keys, *(key for key in done if key not in keys)]
        },
        summed(
            (line for line in runs.ledger(run_id) if line.branch == branch and (upto is None or line.task in done)),
            NO_PRICES if run.standin else configured(run.created_at),
        ),
    )


def _done(output: Committed) -> TaskSide:
    spent = output.prompt_tokens + output.completion_tokens
    chosen = output.flow.get("signal") if "feedback" in output.flow else None
    text = output.raw if chosen is None else f"{output.raw}\n-> {chosen}"  # what a person made of it
    return TaskSide(DONE, text, spent or None, output.ms)
