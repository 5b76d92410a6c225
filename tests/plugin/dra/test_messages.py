"""Every line of the messages is the published interface's, and so is each service's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor import FieldDescriptor

from lab.kubelet.proto.dra.v1 import api_pb2 as v1
from lab.kubelet.proto.dra.v1beta1 import api_pb2 as v1beta1
from lab.kubelet.proto.dra_health.v1 import api_pb2 as health
from lab.kubelet.proto.dra_health.v1alpha1 import api_pb2 as health_alpha
from plugin.dra import messages
from plugin.dra.service import HEALTH_SERVICES, PLUGIN_SERVICES
from plugin.kubelet.rpc.codec import encode

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from plugin.kubelet.rpc.codec import Message

KINDS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_ENUM: "int32",  # which is how an enum is encoded
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_MESSAGE: "message",
}
ROOTS = [
    (interface, name)
    for interface, names in (
        (v1, ("NodePrepareResources", "NodeUnprepareResources")),
        (v1beta1, ("NodePrepareResources", "NodeUnprepareResources")),
        (health, ("NodeWatchResources",)),
        (health_alpha, ("NodeWatchResources",)),
    )
    for name in names
]


def published(descriptor: Descriptor) -> dict[tuple[str, int, str, bool], object]:
    return {
        (field.name, field.number, KINDS[field.type], field.is_repeated): field.message_type
        and published(field.message_type)
        for field in descriptor.fields
    }


def declared(kind: type[Message]) -> dict[tuple[str, int, str, bool], object]:
    return {
        (field.name, number, field.kind.value, field.is_repeated): field.message and declared(field.message)
        for number, field in kind.FIELDS.items()
    }


@pytest.mark.parametrize("side", ["Request", "Response"])
@pytest.mark.parametrize(("interface", "method"), ROOTS)
def test_messages_are_the_published_ones(interface: object, method: str, side: str) -> None:
    descriptor = interface.DESCRIPTOR.message_types_by_name[f"{method}{side}"]  # type: ignore[attr-defined]
    ours, theirs = declared(getattr(messages, f"{method}{side}")), published(descriptor)
    if interface is v1beta1:  # which has no share ids
        assert theirs.items() <= ours.items() or set(map(str, theirs)) <= set(map(str, ours))
    else:
        assert ours == theirs


def test_services_are_the_published_ones() -> None:
    interfaces = (v1, v1beta1, health, health_alpha)
    names = [service.full_name for each in interfaces for service in each.DESCRIPTOR.services_by_name.values()]
    assert names == [*PLUGIN_SERVICES.values(), *HEALTH_SERVICES]  # the kubelet takes the first that it knows


def test_the_map_is_read_as_a_map() -> None:
    device = messages.Device(request_names=("gpu",), pool_name="n1", device_name="gpu-1", cdi_device_ids=("a=b",))
    answer = messages.NodePrepareResourcesResponse(
        claims=(
            messages.PreparedClaim(key="one", value=messages.NodePrepareResourceResponse(devices=(device,))),
            messages.PreparedClaim(key="two", value=messages.NodePrepareResourceResponse(error="no")),
        )
    )
    read = v1.NodePrepareResourcesResponse.FromString(encode(answer))
    assert read.claims["one"].devices[0].cdi_device_ids == ["a=b"]
    assert read.claims["two"].error == "no"
    given = messages.NodeUnprepareResourcesResponse(
        claims=(messages.UnpreparedClaim(key="one", value=messages.NodeUnprepareResourceResponse()),)
    )
    assert "one" in v1.NodeUnprepareResourcesResponse.FromString(encode(given)).claims
