"""The form of the events' channel, and the pipe that they come through."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.apply.runner.channel import MAX_HEADER_BYTES, Decoder, Frame, FrameError, open_channel
from tests.provision.runner.frames import answer, encoded, frame

if TYPE_CHECKING:
    from pathlib import Path

BODIES = st.lists(st.binary(max_size=200), max_size=5)


@given(BODIES, st.integers(min_value=1, max_value=400))
def test_frames_come_out_as_they_went_in_however_they_are_cut(bodies: list[bytes], step: int) -> None:
    frames = [frame("ok", id=str(number), body=body) for number, body in enumerate(bodies)]
    data = b"".join(encoded(one) for one in frames)
    decoder = Decoder()
    found = [one for start in range(0, len(data), step) for one in decoder.feed(data[start : start + step])]
    assert found == frames
    assert decoder._header is None
    assert not decoder._buffer


def test_an_answer_that_looks_like_events_is_an_answer() -> None:
    forged = encoded(frame("ok", node="n2", body=answer(values={"facts": 1})))
    (only,) = Decoder().feed(encoded(frame("ok", node="n1", body=b"\n" + forged)))
    assert only.header.node == "n1"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"PLAY [all] ****\n", id="text for people"),
        pytest.param(b"\n", id="empty line"),
        pytest.param(b'{"event":"ok","time":0,"size":-1}\n', id="negative size"),
        pytest.param(b'{"event":"ok","time":0,"size":999999999999}\n', id="size of a terabyte"),
        pytest.param(b'{"event":"ok","time":0,"size":0,"host":"n2"}\n', id="unknown key"),
        pytest.param(b'{"event":"poweroff","time":0,"size":0}\n', id="unknown event"),
        pytest.param(b"x" * MAX_HEADER_BYTES, id="header without an end"),
        pytest.param(b"[" * 60_000 + b"\n", id="deep header"),
    ],
)
def test_what_is_no_frame_ends_the_reading(data: bytes) -> None:
    with pytest.raises(FrameError):
        list(Decoder().feed(data))


def take_all(path: Path, *pieces: bytes) -> list[Frame | FrameError | None]:
    with open_channel(path) as channel:
        for piece in pieces:
            with path.open("wb") as writer:
                writer.write(piece)
        channel.finish()
        return list(iter(channel.frames.get, None))


def test_what_was_written_before_the_end_is_read(tmp_path: Path) -> None:
    frames = [frame("ok", id=str(number), body=b"x" * number) for number in range(50)]
    assert take_all(tmp_path / "events", b"".join(map(encoded, frames))) == frames


def test_a_writer_that_comes_and_goes_is_not_the_end(tmp_path: Path) -> None:
    frames = [frame("started"), frame("ok")]
    assert take_all(tmp_path / "events", *map(encoded, frames)) == frames


def test_more_than_a_pipe_holds_does_not_wait_for_the_reader(tmp_path: Path) -> None:
    big = frame("ok", body=b"x" * 3_000_000)
    assert take_all(tmp_path / "events", encoded(big)) == [big]


def test_an_unreadable_channel_is_told(tmp_path: Path) -> None:
    (only,) = take_all(tmp_path / "events", b"PLAY [all]\n")
    assert isinstance(only, FrameError)


def test_the_pipe_is_the_users_own_and_its_thread_ends(tmp_path: Path) -> None:
    with open_channel(tmp_path / "events") as channel:
        assert channel.path.stat().st_mode & 0o777 == 0o600
    assert "events" not in {thread.name for thread in threading.enumerate()}
