"""A kubelet that says who has which device, and nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc

from lab.podresources.proto import api_pb2
from plugin.kubelet import KUBELET_SOCKET
from plugin.kubelet.pod_resources.client import FOLDER, METHOD
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def one_container(pod: str, resource: str, *device_ids: str) -> bytes:
    """Return the answer in which the container `main` of one pod has some devices."""
    devices = [api_pb2.ContainerDevices(resource_name=resource, device_ids=device_ids)]
    container = api_pb2.ContainerResources(name="main", devices=devices)
    pods = [api_pb2.PodResources(name=pod, namespace="default", containers=[container])]
    answer: bytes = api_pb2.ListPodResourcesResponse(pod_resources=pods).SerializeToString()
    return answer


@contextmanager
def serving(root: Path, answer: bytes, code: grpc.StatusCode = grpc.StatusCode.OK) -> Iterator[None]:
    """Give one answer to everybody, on the socket below a kubelet's root."""

    def reply(_: bytes, context: grpc.ServicerContext) -> bytes:
        if code is not grpc.StatusCode.OK:
            context.abort(code, "not now")
        return answer

    service, _, name = METHOD.removeprefix("/").partition("/")
    handler = grpc.method_handlers_generic_handler(service, {name: grpc.unary_unary_rpc_method_handler(reply)})
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((handler,))
    (root / FOLDER).mkdir()
    address = SocketAddress(root / FOLDER, KUBELET_SOCKET)
    server.add_insecure_port(address.target)
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()
        address.close()
