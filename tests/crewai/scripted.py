"""What the models of the crews here say: made of the request alone, so the same request gets the same answer."""

from typing import Any

from runner.testing import Call, ModelRequest


def script(request: ModelRequest) -> Any:
    """Two calls of a tool where a task wants them; a coworker asked where it is to be; else `plainly`."""
    if "CALL lookup" in request.text and "lookup" in request.tools and request.turn < 2:
        return Call("lookup", {"number": request.turn})
    delegating = next((name for name in request.tools if name.startswith("delegate_work")), None)
    if "DELEGATE to" in request.text and delegating and request.turn < 1:
        return Call(delegating, {"task": "do it", "context": "for me", "coworker": "Worker"})
    return None
