"""Models of other services, called through LiteLLM (``pip install 'crew-runner[litellm]'``)."""

from typing import Any

import litellm

from runner.llm.clients.completion import Completion, Gathered, Request, read_openai
from runner.llm.clients.model_names import Target


class Client:
    """Calls one model, by LiteLLM's name for it."""

    def __init__(self, target: Target, timeout: float | None, max_retries: int) -> None:  # noqa: ARG002 - as others
        self._target, self._timeout = target, timeout

    def warm(self) -> None:
        """Do nothing: LiteLLM is imported by then, and has no client to create."""

    def complete(self, request: Request) -> Completion:
        """Send the request and return the answer."""
        answer = litellm.completion(**self._body(request))
        if not request.stream:
            return read_openai(answer)
        gathered = Gathered(request.on_chunk)
        for chunk in answer:
            gathered.add(chunk)
        return gathered.completion()

    async def acomplete(self, request: Request) -> Completion:
        """Send the request and return the answer, like `complete`, without blocking the event loop."""
        answer = await litellm.acompletion(**self._body(request))
        if not request.stream:
            return read_openai(answer)
        gathered = Gathered(request.on_chunk)
        async for chunk in answer:
            gathered.add(chunk)
        return gathered.completion()

    def _body(self, request: Request) -> dict[str, Any]:
        target = self._target
        body: dict[str, Any] = {
            "model": target.model,
            "messages": list(request.messages),
            "num_retries": 0,  # the caller retries
            "max_retries": 0,
            **request.options,
        }
        for name, value in (
            ("timeout", self._timeout),
            ("api_base", target.base_url),
            ("api_key", target.api_key),
            ("tools", list(request.tools) or None),
        ):
            if value is not None:
                body[name] = value
        if request.stream:
            body.update(stream=True, stream_options={"include_usage": True})
        return body
