"""The encoding is protobuf's: held against the published interface and against protobuf's own library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError as ProtobufError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from lab.kubelet.proto.pluginregistration.v1 import api_pb2 as watcher_pb2
from lab.podresources.proto import api_pb2 as pods_pb2
from plugin.kubelet.device_plugin import api
from plugin.kubelet.pod_resources import api as pods
from plugin.kubelet.registration import watcher
from plugin.kubelet.rpc.codec import DecodeError, FieldKind, Message, decode, encode

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

KINDS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_MESSAGE: "message",
}
MESSAGES = {name: getattr(api, name) for name in api_pb2.DESCRIPTOR.message_types_by_name}
WATCHER_MESSAGES = {name: getattr(watcher, name) for name in watcher_pb2.DESCRIPTOR.message_types_by_name}
POD_MESSAGES = [
    kind for kind in vars(pods).values() if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
]
GENERATED: dict[str, Any] = {
    **{name: getattr(api_pb2, name) for name in MESSAGES},
    **{name: getattr(watcher_pb2, name) for name in WATCHER_MESSAGES},
}
PUBLISHED = {**api_pb2.DESCRIPTOR.message_types_by_name, **watcher_pb2.DESCRIPTOR.message_types_by_name}


def published(descriptor: Descriptor) -> set[tuple[str, int, str, bool, str]]:
    """Return name, number, kind, whether there may be many, and the message inside, of each field."""
    rows = set()
    for field in descriptor.fields:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            assert [part.type for part in inner.fields] == [FieldDescriptor.TYPE_STRING] * 2
            rows.add((field.name, field.number, "map<string, string>", False, ""))
        else:
            rows.add((field.name, field.number, KINDS[field.type], field.is_repeated, inner.name if inner else ""))
    return rows


def declared(kind: type[Message]) -> set[tuple[str, int, str, bool, str]]:
    return {
        (field.name, number, field.kind.value, field.is_repeated, field.message.__name__ if field.message else "")
        for number, field in kind.FIELDS.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", (MESSAGES | WATCHER_MESSAGES).values(), ids=MESSAGES | WATCHER_MESSAGES)
def test_every_field_is_the_published_one(kind: type[Message]) -> None:
    assert declared(kind) == published(PUBLISHED[kind.__name__])


@pytest.mark.parametrize("kind", POD_MESSAGES, ids=lambda kind: kind.__name__)
def test_every_field_that_is_read_of_pod_resources_is_the_published_one(kind: type[Message]) -> None:
    assert declared(kind) <= published(pods_pb2.DESCRIPTOR.message_types_by_name[kind.__name__])


def values(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Return messages of a class with any fields set."""
    text = st.text(max_size=8)
    plain: dict[FieldKind, st.SearchStrategy[Any]] = {
        FieldKind.STRING: text,
        FieldKind.BOOL: st.booleans(),
        FieldKind.INT32: st.integers(-(2**31), 2**31 - 1),
        FieldKind.INT64: st.integers(-(2**63), 2**63 - 1),
        FieldKind.STRING_MAP: st.dictionaries(text, text, max_size=2),
    }
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in kind.FIELDS.values():
        one = values(field.message) if field.message else plain[field.kind]
        fields[field.name] = st.lists(one, max_size=2).map(tuple) if field.is_repeated else one
    return st.fixed_dictionaries({}, optional=fields).map(lambda found: kind(**found))


ANY_MESSAGE = st.one_of([values(kind) for kind in (MESSAGES | WATCHER_MESSAGES).values()])


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])  # nested messages, busy machines
@given(message=ANY_MESSAGE)
def test_protobuf_reads_what_is_written_and_writes_what_is_read(message: Message) -> None:
    kind = type(message)
    theirs = GENERATED[kind.__name__].FromString(encode(message))
    assert decode(kind, theirs.SerializeToString()) == message


VARINTS = st.integers(0, 300) | st.integers(0, 2**64 - 1)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


CHUNKS = st.one_of(
    st.builds(lambda number, value: varint(number << 3) + varint(value), st.integers(0, 8), VARINTS),
    st.builds(
        lambda number, body: varint(number << 3 | 2) + varint(len(body)) + body,
        st.integers(0, 8),
        st.binary(max_size=12) | st.text(max_size=6).map(str.encode),
    ),
    st.builds(
        lambda number, wire, body: varint(number << 3 | wire) + body, st.integers(0, 8), st.integers(0, 7), st.binary()
    ),
    st.builds(
        lambda number, body, end: varint(number << 3 | 3) + body + varint(end << 3 | 4),
        st.integers(1, 8),
        st.just(b"") | st.just(b"\x08\x05"),
        st.integers(1, 8),
    ),
)


@pytest.mark.slow
@settings(max_examples=500)
@given(
    kind=st.sampled_from([*MESSAGES.values(), *WATCHER_MESSAGES.values()]),
    data=st.lists(CHUNKS, max_size=4).map(b"".join) | st.binary(max_size=40),
)
def test_bytes_mean_what_protobuf_says_they_mean(kind: type[Message], data: bytes) -> None:
    theirs = GENERATED[kind.__name__]
    try:
        expected = theirs.FromString(data)
    except ProtobufError:
        with pytest.raises(DecodeError):
            decode(kind, data)
        return
    try:
        message = decode(kind, data)
    except DecodeError as error:
        assert "no field has the number 0" in str(error)  # noqa: PT017 - the one thing in which upb is more tolerant
        return
    expected.DiscardUnknownFields()
    assert theirs.FromString(encode(message)) == expected


def test_a_message_is_a_value() -> None:
    device = api.Device(ID="GPU-0")
    assert device == api.Device(ID="GPU-0", health="")
    assert device != api.Device(ID="GPU-1")
    assert device != api.Mount()
    assert repr(device) == "Device(ID='GPU-0', health='', topology=None)"
    with pytest.raises(AttributeError, match=r"Device\.ID cannot be changed"):
        device.ID = "GPU-1"  # type: ignore[misc] # what is tested


def test_a_field_that_a_message_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="Device has no field Id"):
        api.Device(Id="GPU-0")  # type: ignore[call-arg] # what is tested
