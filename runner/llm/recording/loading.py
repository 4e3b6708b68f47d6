"""The transports are journaled as soon as their library is loaded: now, or when it is imported."""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import threading
from collections.abc import Sequence
from types import ModuleType

from runner.core.deferred import LoaderAround
from runner.llm.recording import forked_processes  # noqa: F401 - it notices processes that are forked_processes before a client is loaded

_TRANSPORTS = {
    "httpx": "httpx_transport",
    "httpx2": "httpx_transport",
    "urllib3.connectionpool": "urllib3_transport",
    "aiohttp.client": "aiohttp_transport",
    "http.client": "http_client",
    "mcp.client.session": "mcp_session",
    "websockets.client": "web_socket",
    "websocket._core": "web_socket",
    "pycurl": "curl",
    "curl_cffi.curl": "curl",
    "curl_cffi.aio": "curl",
    "grpc._channel": "grpc_channel",
    "grpc.aio._channel": "grpc_channel",
}
"""The modules whose transports are journaled, or whose uses of tools, and which of ours does it: loaded for none that
is not used."""

_lock = threading.Lock()
_watching = False


def watch_imports() -> None:
    """See to it. Costs a comparison when that was done before.

    A library that another thread is just importing, from before this was called, is looked at again with the next call.
    """
    global _watching
    if _watching:
        return
    with _lock:
        # LiteLLM's calls that are awaited would go through aiohttp; whoever wants that says so.
        os.environ.setdefault("DISABLE_AIOHTTP_TRANSPORT", "True")
        if not any(isinstance(one, _Finder) for one in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
        loaded = [module for name in _TRANSPORTS if (module := sys.modules.get(name)) is not None]
        loading = [module for module in loaded if getattr(module.__spec__, "_initializing", False)]
        for module in loaded:
            if module not in loading:
                _install(module)
        _watching = not loading


def _install(module: ModuleType) -> None:
    importlib.import_module(f"runner.llm.recording.{_TRANSPORTS[module.__name__]}").install(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the libraries as others do, and has them journaled when they are loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _TRANSPORTS:
            return None
        for finder in sys.meta_path:
            if isinstance(finder, _Finder) or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(LoaderAround):
    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _install(module)
