"""Serves a fake of the kubelet's pod resources socket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc

from plugin.kubelet import KUBELET_SOCKET
from plugin.kubelet.pod_resources.client import FOLDER, METHOD
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def serving(root: Path, answer: Callable[[], bytes]) -> Iterator[None]:
    """Serve List below a kubelet's root; `answer` is called in a thread, and may take its time."""
    service, _, name = METHOD.removeprefix("/").partition("/")
    handler = grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer())
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
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
