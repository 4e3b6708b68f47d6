"""The journal at the stubs of ``grpc`` and ``grpc.aio``, through which xAI's and Google's clients send.

What a stub holds of each method is below interceptors: each attempt that one of these, or ``google.api_core``, makes is
a call of its own. One whose requests are a stream is not recorded: it is counted, if its method is one of a model.
"""

from functools import partial
from typing import Any

from runner.llm.recording import grpc_aio_stub, grpc_stub, rpc, unrecorded
from runner.llm.recording.wrapping import precede, wrap


def install(module: Any) -> None:
    """Have the calls through channels of ``grpc`` or ``grpc.aio`` journaled. Does nothing the second time."""
    if module.__name__.startswith("grpc.aio"):
        wrap(module.Channel, "__init__", partial(grpc_aio_stub.remembered, module))
        for kind in (module.UnaryUnaryCall, module.UnaryStreamCall):
            wrap(kind, "__init__", partial(grpc_aio_stub.journaled, module))
        for kind in (module.UnaryUnaryMultiCallable, module.UnaryStreamMultiCallable):
            wrap(kind, "__call__", partial(grpc_aio_stub.in_this_loop, module))
        for kind in (module.StreamUnaryMultiCallable, module.StreamStreamMultiCallable):
            precede(kind, "__call__", _count)
        return
    of_one = module._UnaryUnaryMultiCallable
    wrap(of_one, "__call__", partial(grpc_stub.unary, module))
    wrap(of_one, "with_call", partial(grpc_stub.unary, module, with_call=True))
    wrap(of_one, "future", partial(grpc_stub.started, module, streams=False))
    for kind in (module._UnaryStreamMultiCallable, module._SingleThreadedUnaryStreamMultiCallable):
        wrap(kind, "__call__", partial(grpc_stub.started, module, streams=True))
    for way in ("__call__", "with_call", "future"):
        precede(module._StreamUnaryMultiCallable, way, _count)
    precede(module._StreamStreamMultiCallable, "__call__", _count)


def _count(stub: Any, *_: Any, **__: Any) -> None:
    target = getattr(stub, "_target", None) or stub._channel.target  # one that is awaited has it of its channel
    address = rpc.url(grpc_stub.text(target), grpc_stub.text(stub._method))
    if rpc.may_be(address):
        unrecorded.count(address)
