"""Reads the named pipe on which the events of a run arrive, out of reach of whatever a node prints.

It lies in the run's own folder (mode 0700). A thread reads it, so that a slow reader of the events holds up nobody:
ansible-playbook would stand still once the pipe is full.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.apply.runner.frames import Decoder, Frame, FrameError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VARIABLE: Final = "GRAPNEL_EVENTS"  # tells the callback where the pipe is
KEYS_VARIABLE: Final = "GRAPNEL_EVENT_KEYS"  # and which keys of an answer are wanted
_CHUNK_BYTES: Final = 256 * 1024
_POLL_MS: Final = 100


@dataclass(slots=True)
class Channel:
    """A pipe that is being read. Frames, or why it cannot be read, arrive in ``frames``; None is the end."""

    path: Path
    frames: queue.SimpleQueue[Frame | FrameError | None] = field(default_factory=queue.SimpleQueue)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def finish(self) -> None:
        """Say that nobody writes any more: what is in the pipe is still read, then the end follows."""
        self._is_over.set()

    def pump(self, descriptor: int) -> None:
        """Read until the end, on the channel's own thread."""
        decoder = Decoder()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        try:
            while True:
                is_last = self._is_over.is_set()  # asked before the pipe is: what was written first is not missed
                if poll.poll(0 if is_last else _POLL_MS):
                    for frame in decoder.feed(os.read(descriptor, _CHUNK_BYTES)):
                        self.frames.put(frame)
                elif is_last:
                    break
        except FrameError as error:
            self.frames.put(error)
        self.frames.put(None)


@contextlib.contextmanager
def open_channel(path: Path) -> Iterator[Channel]:
    """Make the pipe and read it until the end of the block."""
    os.mkfifo(path, 0o600)
    # Opened for writing too: the pipe has no end before the run has, whoever opens and closes it.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    channel = Channel(path)
    thread = threading.Thread(target=channel.pump, args=(descriptor,), name="events")
    thread.start()
    try:
        yield channel
    finally:
        channel.finish()
        thread.join()
        os.close(descriptor)
