"""The journal at the stubs of ``grpc`` and ``grpc.aio``, through which xAI's and Google's clients send.

What a stub holds of each method is below interceptors: each attempt that one of these, or ``google.api_core``, makes is
a call of its own. One whose requests are a stream is not recorded: it is counted, if its method is one of a model.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from runner.llm.recording import grpc_aio_stub, grpc_stub, rpc, unrecorded


def install(module: Any) -> None:
    """Have the calls through channels of ``grpc`` or ``grpc.aio`` journaled. Does nothing the second time."""
    if module.__name__.startswith("grpc.aio"):
        _wrap(module.Channel, "__init__", partial(grpc_aio_stub.remembered, module))
        for kind in (module.UnaryUnaryCall, module.UnaryStreamCall):
            _wrap(kind, "__init__", partial(grpc_aio_stub.journaled, module))
        for kind in (module.UnaryUnaryMultiCallable, module.UnaryStreamMultiCallable):
            _wrap(kind, "__call__", partial(grpc_aio_stub.in_this_loop, module))
        for kind in (module.StreamUnaryMultiCallable, module.StreamStreamMultiCallable):
            _wrap(kind, "__call__", _counted)
        return
    of_one = module._UnaryUnaryMultiCallable
    _wrap(of_one, "__call__", partial(grpc_stub.unary, module))
    _wrap(of_one, "with_call", partial(grpc_stub.unary, module, with_call=True))
    _wrap(of_one, "future", partial(grpc_stub.started, module, streams=False))
    for kind in (module._UnaryStreamMultiCallable, module._SingleThreadedUnaryStreamMultiCallable):
        _wrap(kind, "__call__", partial(grpc_stub.started, module, streams=True))
    for way in ("__call__", "with_call", "future"):
        _wrap(module._StreamUnaryMultiCallable, way, _counted)
    _wrap(module._StreamStreamMultiCallable, "__call__", _counted)


def _wrap(owner: Any, way: str, wrapped: Callable[[Any], Any]) -> None:
    theirs = getattr(owner, way)
    if not hasattr(theirs, "journaled"):
        ours: Any = wraps(theirs)(wrapped(theirs))
        ours.journaled = True
        setattr(owner, way, ours)


def _counted(theirs: Any) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        target = getattr(self, "_target", None) or self._channel.target  # one that is awaited has it of its channel
        address = rpc.url(grpc_stub.text(target), grpc_stub.text(self._method))
        if rpc.may_be(address):
            unrecorded.count(address)
        return theirs(self, *args, **kwargs)

    return call
