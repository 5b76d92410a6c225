"""Asks the kubelet who has which devices: `v1.PodResourcesLister/List` on its pod resources socket.

Of the answer only names and device ids are read; the messages are few enough to be read by hand. Source:
k8s.io/kubelet, pkg/apis/podresources/v1/api.proto, and the protobuf encoding guide. Not here: what is made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.errors import KubeletError
from plugin.kubelet.pod_resources.attribution import Given, PodContainer
from plugin.kubelet.rpc.client import call_bytes
from plugin.kubelet.rpc.connection import Limits
from plugin.kubelet.rpc.status import CallError
from plugin.system.sockets import KUBELET_SOCKET, SocketAddress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METHOD = "/v1.PodResourcesLister/List"
FOLDER = "pod-resources"  # below the kubelet's root
_MAX_ANSWER_BYTES = 16 << 20  # the limit of the kubelet's own clients
_MAX_DETAIL = 200
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where the next byte is; raises IndexError where the bytes end first."""
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the top bit says that more follow
            return value, at
        if shift > 63:  # noqa: PLR2004 - numbers have 64 bits
            raise ValueError("a number has more than 64 bits")


def _chunks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return number and bytes of each field that has bytes; the others are skipped. Raises ValueError."""
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            number, wire = tag >> 3, tag & 7
            if wire == _VARINT:
                _, at = _varint(data, at)
                continue
            size, at = _varint(data, at) if wire == _BYTES else (_FIXED_SIZES[wire], at)
            if size > len(data) - at:
                raise ValueError("a field is longer than its message")
            if wire == _BYTES:
                yield number, data[at : at + size]
            at += size
    except (IndexError, KeyError) as error:
        raise ValueError("not a message") from error


def _text(data: bytes, number: int) -> str:
    """Return a field of text, of which the last one counts."""
    found = ""
    for each, chunk in _chunks(data):
        if each == number:
            found = chunk.decode()
    return found


def _parts(data: bytes, number: int) -> Iterator[bytes]:
    return (chunk for each, chunk in _chunks(data) if each == number)


def parse_given(answer: bytes) -> tuple[Given, ...]:
    """Return what a ListPodResourcesResponse says, in its order; raises ValueError for bytes that are none.

    Fields: response.pod_resources 1; PodResources.name 1, .namespace 2, .containers 3; ContainerResources.name 1,
    .devices 2; ContainerDevices.resource_name 1, .device_ids 2.
    """
    return tuple(
        Given(
            PodContainer(_text(pod, 2), _text(pod, 1), _text(container, 1)),
            _text(devices, 1),
            tuple(device_id.decode() for device_id in _parts(devices, 2)),
        )
        for pod in _parts(answer, 1)
        for container in _parts(pod, 3)
        for devices in _parts(container, 2)
    )


async def list_given(kubelet_root: Path, deadline_s: float) -> tuple[Given, ...]:
    """Ask the kubelet; raises KubeletError, also for an answer that is none."""
    folder = kubelet_root / FOLDER
    path, hint = folder / KUBELET_SOCKET, "metrics have no pod labels until it answers"
    try:
        address = SocketAddress(folder, KUBELET_SOCKET)
    except OSError as error:
        raise KubeletError(f"{folder} cannot be opened: {(error.strerror or str(error)).lower()}", hint) from error
    limits = Limits(message_bytes=_MAX_ANSWER_BYTES)
    try:
        return parse_given(await call_bytes(address.path, METHOD, b"", deadline_s=deadline_s, limits=limits))
    except CallError as error:
        code, detail = error.code.name, error.detail[:_MAX_DETAIL]
        raise KubeletError(f"{path} does not say who has which device: {code}: {detail}", hint) from error
    except ValueError as error:
        raise KubeletError(f"{path} gives an answer that is none: {error}", hint) from error
    finally:
        address.close()
