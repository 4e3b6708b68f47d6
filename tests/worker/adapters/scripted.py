"""What the models of the crews here say: made of the request alone, so the same request gets the same answer."""

import re
from typing import Any

from runner.testing import Call, ModelRequest


def script(request: ModelRequest) -> Any:
    """Two calls of a tool where a task wants them; a coworker asked where it is to be; else `plainly`.

    A task may say itself which tools are to be used: `USE one a=1 & other b=x_y; one a=2 END`, turn by turn.
    """
    if "CALL lookup" in request.text and "lookup" in request.tools and request.turn < 2:
        return Call("lookup", {"number": request.turn})
    delegating = next((name for name in request.tools if name.startswith("delegate_work")), None)
    if "DELEGATE to" in request.text and delegating and request.turn < 1:
        return Call(delegating, {"task": "do it", "context": "for me", "coworker": "Worker"})
    told = re.findall(r"USE (.*?) END", "\n".join(one["content"] for one in request.messages if one["role"] == "user"))
    turns = told[-1].split(";") if told else []
    if request.turn < len(turns):
        calls = [_call(text.split()) for text in turns[request.turn].split("&")]
        return [one for one in calls if one.name in request.tools] or None
    if "as JSON" in request.text and request.schema is None:
        return '{"title": "owls", "score": 3}'
    return None


def _call(words: list[str]) -> Call:
    given = dict(word.split("=", 1) for word in words[1:])
    return Call(words[0], {n: int(text) if text.isdigit() else text.replace("_", " ") for n, text in given.items()})
