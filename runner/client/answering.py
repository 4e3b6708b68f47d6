"""Answers the question of a run."""

from runner.client.handle import ClientPort, RunHandle
from runner.core.errors import Conflict
from runner.flows.feedback import choose, verdict


def answer(
    client: ClientPort,
    run_id: str,
    text: str | None,
    *,
    approve: bool,
    reject: str | None,
    task: str | None,
    branch: str | None,
) -> RunHandle:
    """Answer a question and resume the run. See `Client.answer`."""
    runs = client.store.runs
    for _ in range(20):
        run = runs.get(run_id)
        name = branch or run.branch
        after = runs.last_event(run_id)
        status = runs.status(run_id, name)
        asked = [one for one in runs.questions(run_id, name) if task in (None, one.task)]
        if not asked:
            whose = f" of task {task!r}" if task else ""
            raise Conflict(f"run {run_id} is {status.value} and is not awaiting an answer{whose}")
        if len(asked) > 1:
            names = ", ".join(one.task for one in asked)
            raise Conflict(f"run {run_id} is awaiting {len(asked)} answers: choose one with --task: {names}")
        question = asked[0]
        said = verdict(text, approve, reject, question.labels, question.about)
        if question.labels and not said.label and said.strip() and not question.about.get("has_model"):
            choose(said, question.labels, default=question.about.get("default_outcome"))
        found = runs.answer(run_id, name, question, said.dump())
        if found == "answered":
            client.ensure_worker(run.queue)
            beside = run.branch != name
            return RunHandle(client, run_id, branch=name if beside else None, _from=after)
        if found not in ("changed", "not asked"):
            raise Conflict(f"run {run_id} is {found}: `runner resume {run_id}` first, then answer")
    raise Conflict(f"run {run_id} kept changing while it was being answered: try again")
