"""Serves a fake of the kubelet's pod resources socket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc

from plugin.kubelet import KUBELET_SOCKET
from plugin.kubelet.pod_resources import allocatable as allocatable_resources
from plugin.kubelet.pod_resources.client import FOLDER, METHOD
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def serving(root: Path, answer: Callable[[], bytes], allocatable: Callable[[], bytes] | None = None) -> Iterator[None]:
    """Serve List, and what is allocatable, below a kubelet's root; called in threads, they may take their time."""
    handlers = {}
    for method, call in ((METHOD, answer), (allocatable_resources.METHOD, allocatable)):
        service, _, name = method.removeprefix("/").partition("/")
        if call is not None:
            handlers[name] = _handler(call)
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    (root / FOLDER / KUBELET_SOCKET).unlink(missing_ok=True)
    address = SocketAddress(root / FOLDER, KUBELET_SOCKET)
    server.add_insecure_port(address.target)
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()
        address.close()


def _handler(call: Callable[[], bytes]) -> grpc.RpcMethodHandler[bytes, bytes]:
    return grpc.unary_unary_rpc_method_handler(lambda _request, _context: call())
