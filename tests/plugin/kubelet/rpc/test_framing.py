from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.kubelet.rpc.framing import MessageReader, frame_message
from plugin.kubelet.rpc.status import CallError, Code


@given(payloads=st.lists(st.binary(max_size=50), max_size=5), data=st.data())
def test_messages_are_found_however_the_bytes_are_cut(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame_message(payload) for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = MessageReader(50)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:end])
    assert found == payloads
    assert reader.is_between_messages


def test_half_a_message_is_no_message() -> None:
    reader = MessageReader(50)
    assert reader.feed(frame_message(b"abc")[:-1]) == []
    assert not reader.is_between_messages


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"\x00\x00\x00\x00\x33", Code.RESOURCE_EXHAUSTED, id="longer than allowed"),
        pytest.param(b"\x00\xff\xff\xff\xff", Code.RESOURCE_EXHAUSTED, id="as long as can be said"),
        pytest.param(b"\x01\x00\x00\x00\x00", Code.UNIMPLEMENTED, id="compressed"),
    ],
)
def test_a_message_is_refused_by_its_prefix_alone(data: bytes, code: Code) -> None:
    with pytest.raises(CallError) as raised:
        MessageReader(50).feed(data)
    assert raised.value.code is code
