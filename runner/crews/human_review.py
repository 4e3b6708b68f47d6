"""``Task(human_input=True)``: asks a person about a task's output until they accept it.

The output is recorded as it was shown: accepting it days later, on another machine, costs nothing, and an objection
only the next answer.
"""

import select
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from runner.agents import conversation
from runner.core import output as outputs
from runner.core.errors import TaskError
from runner.core.output import TaskOutput
from runner.crews.context import TaskContext
from runner.engine.work import Work
from runner.journal.cancellation.cancel_scope import CancelScope

QUESTION = "Is this answer good? Approve it, or say what should be different."

_LOOK = 0.1  #: seconds between looks whether the task is to stop while a person thinks

_terminal = threading.Lock()  # one question at a time


def reviewed(
    context: TaskContext,
    work: Work,
    attempt: Callable[[], TaskOutput],
    again: Callable[[Mapping[str, Any]], TaskOutput],
) -> TaskOutput:
    """Return the output that a person accepts. ``attempt`` makes one; ``again`` restores one from its record."""
    messages = work.conversation.messages
    asked, seen = 0, 0
    while True:
        asked += 1
        kept = work.journal.get_marker(f"answer {asked}")
        if kept is None:
            output = attempt()
            kept = {
                **outputs.record(output),
                "said": messages[seen:],
                "position": work.journal.position(),
                "account": work.journal.account(),
                "uses": work.uses.noted(),
            }
            work.journal.set_marker(f"answer {asked}", kept)
        else:
            output = again(kept)
            work.journal.fast_forward(kept["position"], kept.get("account", ""))
            work.uses.recall(kept["uses"])
            work.conversation.say(*kept["said"][len(messages) - seen :])
        seen += len(kept["said"])
        said = _ask(work, output)
        if not said.strip():
            return output
        context.feedback = said
        if seen and len(messages) == seen:
            work.conversation.say(conversation.respond(said))


def _ask(work: Work, output: TaskOutput) -> str:
    about = {
        "task": work.key,
        "description": output.description,
        "agent": output.agent,
        "method_output": output.raw if output.json_dict is None else output.json_dict,
        "review": True,
    }

    def obtain(step: str) -> str | None:  # noqa: ARG001 - the port's name
        if work.journal.can_wait:
            return None
        said = _on_terminal(f"{work.key}: {output.raw}\n{QUESTION} (Enter approves)\n> ", work.journal.cancel_scope)
        if said is None:
            raise TaskError(
                f"task {work.key!r} asks for human feedback, but there is no terminal here: "
                "`runner submit` keeps such a run until `runner answer`"
            )
        return said

    return work.journal.answer(QUESTION, obtain, about)


def _on_terminal(prompt: str, cancel_scope: CancelScope) -> str | None:
    """Return a line that a person types; None without a terminal, or at the end of input. A stop ends the wait."""
    if sys.stdin is None or not sys.stdin.isatty():
        return None
    with _terminal:
        print(prompt, end="", flush=True)
        while not _typed():
            cancel_scope.check()
        line = sys.stdin.readline()
    return line.strip() if line else None


def _typed() -> bool:
    with suppress(OSError, ValueError):  # no file to watch: reading it has to wait
        return bool(select.select([sys.stdin], [], [], _LOOK)[0])
    return True
