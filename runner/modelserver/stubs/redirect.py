"""The last turn of a request before it leaves: to the server that stands in for who it was meant for."""

from typing import Any

from runner.modelserver.stubs import Standin, elsewhere

DROPPED = {"host", "authorization", "x-api-key", "api-key", "x-goog-api-key"}


def redirect_request(library: Any, request: Any, instead: Standin | None = None) -> Any:
    """The request as it is to be sent; one that asks a model goes to ``instead``. No key goes to a stand-in."""
    if instead is None and not request.url.host.endswith(".invalid"):
        return request
    url = elsewhere(str(request.url), instead)
    if url is None:
        return request
    headers = [(name, value) for name, value in request.headers.multi_items() if name.lower() not in DROPPED]
    headers.append(("Host", library.URL(url).netloc.decode()))
    return library.Request(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)
