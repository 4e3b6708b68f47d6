"""Calls of models by curl, through pycurl or curl_cffi, which no journal keeps: each is counted, by host and path."""

from collections.abc import Callable
from typing import Any

from runner.llm.recording import unrecorded
from runner.llm.recording.wrapping import precede, wrap


def install(module: Any) -> None:
    """Watch what leaves through ``pycurl``, ``curl_cffi.curl`` or ``curl_cffi.aio``, once in a process."""
    if module.__name__ == "curl_cffi.aio":
        _watch_many(module.AsyncCurl)
    elif module.__name__ == "curl_cffi.curl":
        _watch_one(module.Curl)
    elif not hasattr(module.Curl.perform, "journaled"):
        # Its classes are C's, and take no method of ours
        module.Curl, module.CurlMulti = type("Curl", (module.Curl,), {}), type("CurlMulti", (module.CurlMulti,), {})
        _watch_one(module.Curl)
        _watch_many(module.CurlMulti)


def _watch_many(multi: Any) -> None:
    precede(multi, "add_handle", lambda _, handle: _asked_by(handle).leaves())


def _watch_one(easy: Any) -> None:
    looks: dict[str, Callable[..., object]] = {
        **dict.fromkeys(
            ("setopt", "setopt_string"), lambda handle, option, value: _asked_by(handle).set(option, value)
        ),
        "unsetopt": lambda handle, option: _asked_by(handle).set(option, None),
        "reset": lambda handle: _asked_by(handle).reset(),
        **dict.fromkeys(("perform", "perform_rb", "perform_rs"), lambda handle, *_, **__: _asked_by(handle).leaves()),
    }
    for name, look in looks.items():
        if hasattr(easy, name):  # each library has some of them
            precede(easy, name, look)
    wrap(easy, "duphandle", _copied)


def _copied(theirs: Any) -> Any:
    def duphandle(self: Any) -> Any:
        copy = theirs(self)
        vars(_asked_by(copy)).update(vars(_asked_by(self)))
        return copy

    return duphandle


def _asked_by(handle: Any) -> "_Asked":
    found: _Asked = vars(handle).setdefault("runner_asked", _Asked())
    return found


_URL, _CUSTOM_REQUEST, _POST, _HTTP_GET, _UPLOAD = 10002, 10036, 47, 80, 46
_BODIES, _FORMS = (10015, 10165), (10024, 10269)
"""The numbers by which libcurl knows these options, in all versions."""


class _Asked:
    """What a handle of curl's is told to ask."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._url = self._method = ""
        self._posts = self._uploads = False
        self._body: bytes | None = None  #: None: it is read as it leaves, or a form

    def set(self, option: int, value: Any) -> None:
        if option == _URL:
            self._url = _text(value)
        elif option == _CUSTOM_REQUEST:
            self._method = _text(value)
        elif option in _BODIES or option in _FORMS:
            self._posts = value is not None
            self._body = _bytes(value) if option in _BODIES and value is not None else None
        elif option == _POST:
            self._posts = bool(value)
        elif option == _HTTP_GET:
            self._posts = self._posts and not value
        elif option == _UPLOAD:
            self._uploads, self._body = bool(value), None

    def leaves(self) -> None:
        if self._url.startswith(("ws:", "wss:")):
            unrecorded.look_at_socket(self._url)
            return
        method = self._method or ("PUT" if self._uploads else "POST" if self._posts else "GET")
        unrecorded.look_at(method, self._url, self._body)


def _text(value: Any) -> str:
    return _bytes(value).decode("utf-8", "replace") if value is not None else ""


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
