"""Models of other services, called through LiteLLM (``pip install 'crew-runner[litellm]'``)."""

from typing import Any

import litellm

from runner.llm.clients.completion import Completion, Gathered, Request, read_openai
from runner.llm.clients.model_names import Target


class Client:
    """One model, by the name that LiteLLM knows it by."""

    def __init__(self, target: Target, timeout: float | None, max_retries: int) -> None:  # noqa: ARG002 - as others
        self._target, self._timeout = target, timeout

    def warm(self) -> None:
        """It is imported; there is nothing more to make."""

    def complete(self, request: Request) -> Completion:
        """Ask, and give the answer."""
        answer = litellm.completion(**self._body(request))
        if not request.stream:
            return read_openai(answer)
        gathered = Gathered(request.on_chunk)
        for chunk in answer:
            gathered.add(chunk)
        return gathered.completion()

    async def acomplete(self, request: Request) -> Completion:
        """`complete` for those who await it."""
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
