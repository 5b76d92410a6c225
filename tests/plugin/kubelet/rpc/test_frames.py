"""Frames are cut alike however their bytes arrive, and never kept when they are too long."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.kubelet.rpc.frames import PREFACE_BYTES, FrameCutter, FrameTooLong

LIMIT = 100
FRAMES = st.lists(
    st.binary(max_size=LIMIT).map(lambda payload: len(payload).to_bytes(3, "big") + bytes(6) + payload), max_size=5
)


def cut(cutter: FrameCutter) -> list[bytes]:
    found = []
    while frame := cutter.next_frame(LIMIT):
        found.append(frame)
    return found


@given(FRAMES, st.lists(st.integers(0, 600)), st.binary(max_size=8))
def test_frames_are_the_same_however_their_bytes_arrive(frames: list[bytes], cuts: list[int], rest: bytes) -> None:
    data, cutter, found = b"".join(frames) + rest, FrameCutter(), []
    ends = sorted({0, len(data), *(end for end in cuts if end < len(data))})
    for start, end in pairwise(ends):
        cutter.feed(data[start:end])
        found += cut(cutter)
    assert found == frames


def test_a_preface_goes_through_as_it_comes() -> None:
    cutter = FrameCutter(PREFACE_BYTES)
    cutter.feed(b"p" * 10)
    assert cut(cutter) == [b"p" * 10]
    cutter.feed(b"p" * 14 + bytes(9))
    assert cut(cutter) == [b"p" * 14, bytes(9)]


def test_a_frame_that_is_too_long_is_refused_by_its_header() -> None:
    cutter = FrameCutter()
    cutter.feed((LIMIT).to_bytes(3, "big") + bytes(6))
    assert cutter.next_frame(LIMIT) == b""
    with pytest.raises(FrameTooLong, match="a frame of 100 bytes is longer than the limit 99"):
        cutter.next_frame(LIMIT - 1)
