"""The messages of `dra/v1` and `dra-health`, with the interfaces' own names.

A map is any number of pairs of key and value, which is what it is in bytes. `dra/v1beta1` has the same messages under
another service, and so has health `v1`. A test holds every line against the published files in `lab/kubelet/proto`.
"""

from __future__ import annotations

from plugin.kubelet.rpc.codec import Message, int32, int64, message, messages, string, strings


class Claim(Message):
    """A ResourceClaim."""

    namespace: str = string(1)
    uid: str = string(2)
    name: str = string(3)


class NodePrepareResourcesRequest(Message):
    """Claims of a pod that is about to start."""

    claims: tuple[Claim, ...] = messages(1, Claim)


class Device(Message):
    """One device of a claim, and how the engine is told to add it."""

    request_names: tuple[str, ...] = strings(1)
    pool_name: str = string(2)
    device_name: str = string(3)
    cdi_device_ids: tuple[str, ...] = strings(4)
    share_id: str = string(5)


class NodePrepareResourceResponse(Message):
    """The devices of one claim, or why there are none."""

    devices: tuple[Device, ...] = messages(1, Device)
    error: str = string(2)


class PreparedClaim(Message):
    """An entry of the answer's map."""

    key: str = string(1)
    value: NodePrepareResourceResponse | None = message(2, NodePrepareResourceResponse)


class NodePrepareResourcesResponse(Message):
    """The answer for each claim, by its UID."""

    claims: tuple[PreparedClaim, ...] = messages(1, PreparedClaim)


class NodeUnprepareResourcesRequest(Message):
    """Claims that no pod of this node uses any more."""

    claims: tuple[Claim, ...] = messages(1, Claim)


class NodeUnprepareResourceResponse(Message):
    """Why a claim is still prepared, "" where it is not."""

    error: str = string(1)


class UnpreparedClaim(Message):
    """An entry of the answer's map."""

    key: str = string(1)
    value: NodeUnprepareResourceResponse | None = message(2, NodeUnprepareResourceResponse)


class NodeUnprepareResourcesResponse(Message):
    """The answer for each claim, by its UID."""

    claims: tuple[UnpreparedClaim, ...] = messages(1, UnpreparedClaim)


class NodeWatchResourcesRequest(Message):
    """Nothing."""


class DeviceIdentifier(Message):
    """A device by its pool and its name there."""

    pool_name: str = string(1)
    device_name: str = string(2)


class DeviceHealth(Message):
    """The state of one device. `health`: 0 unknown, 1 healthy, 2 unhealthy; times in seconds."""

    device: DeviceIdentifier | None = message(1, DeviceIdentifier)
    health: int = int32(2)
    last_updated_time: int = int64(3)
    health_check_timeout_seconds: int = int64(4)
    message: str = string(5)


class NodeWatchResourcesResponse(Message):
    """The state of every device."""

    devices: tuple[DeviceHealth, ...] = messages(1, DeviceHealth)
