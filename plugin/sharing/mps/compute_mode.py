"""Keeps a shared GPU for its MPS server alone, and gives it its earlier compute mode back, in the driver's thread.

In mode EXCLUSIVE_PROCESS a process that leaves MPS, by another CUDA_MPS_PIPE_DIRECTORY, gets no context at all: without
that it would have the whole GPU, without any ceiling.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from plugin.base.errors import MpsError, os_reason
from plugin.driver.nvml.changes.compute_mode import read_compute_mode, write_compute_mode
from plugin.system.thread_calls import called_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plugin.sharing.mps.plan import MpsDaemon

DEFAULT, EXCLUSIVE_THREAD, PROHIBITED, EXCLUSIVE_PROCESS = range(4)  # nvmlComputeMode_t
_REFUSED = {EXCLUSIVE_THREAD: "EXCLUSIVE_THREAD", PROHIBITED: "PROHIBITED"}


async def take(modes: DriverModes, daemon: MpsDaemon) -> bool:
    """Set EXCLUSIVE_PROCESS, after what was there before has been noted; returns whether it was another mode.

    Raises MpsError, also for a mode that an administrator has chosen against sharing.
    """
    found = await modes.read(daemon.uuid)
    if found in _REFUSED:
        raise MpsError(
            f"its compute mode is {_REFUSED[found]}, which somebody has set",
            f"nvidia-smi -i {daemon.uuid} -c DEFAULT allows it to be shared",
        )
    if not daemon.earlier_mode.exists():
        _note(daemon.earlier_mode, found)
    if found != EXCLUSIVE_PROCESS:
        await modes.write(daemon.uuid, EXCLUSIVE_PROCESS)
    return found != EXCLUSIVE_PROCESS


async def give_back(modes: DriverModes, daemon: MpsDaemon) -> None:
    """Set what was noted, unless an administrator has set another mode meanwhile; raises MpsError."""
    earlier = _noted(daemon.earlier_mode)
    if earlier is not None and await modes.read(daemon.uuid) == EXCLUSIVE_PROCESS != earlier:
        await modes.write(daemon.uuid, earlier)
    daemon.earlier_mode.unlink(missing_ok=True)


def _note(path: Path, mode: int) -> None:
    try:
        path.write_text(f"{mode}\n")
    except OSError as error:
        raise MpsError(f"{path} cannot be written: {os_reason(error)}") from error


def _noted(path: Path) -> int | None:
    """Return the mode; a file that a crash has left empty stands for the default."""
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return DEFAULT
    return int(text) if text in {str(DEFAULT), str(EXCLUSIVE_PROCESS)} else DEFAULT


_Answer = TypeVar("_Answer")
_TIMEOUT_S = 10.0


class DriverModes:
    """`DriverModes`, one question at a time; `hand_over` has a function called in the driver's thread.

    A question that was not answered in time is put no second time: while it waits, every other one fails.
    """

    def __init__(
        self,
        hand_over: Callable[[Callable[[], None]], None],
        timeout_s: float = _TIMEOUT_S,
        calls: tuple[Callable[[str], int], Callable[[str, int], None]] = (read_compute_mode, write_compute_mode),
    ) -> None:
        self._hand_over = hand_over
        self._timeout_s = timeout_s
        self._read, self._write = calls
        self._turn = asyncio.Lock()
        self._pending: asyncio.Future[object] | None = None

    async def read(self, uuid: str) -> int:
        """Return the mode of a GPU; raises MpsError."""
        return await self._ask(lambda: self._read(uuid))

    async def write(self, uuid: str, mode: int) -> None:
        """Set the mode of a GPU; raises MpsError."""
        await self._ask(lambda: self._write(uuid, mode))

    async def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        async with self._turn:
            if self._pending is None or self._pending.done():
                self._pending = called_in(self._hand_over, question)
                done, _ = await asyncio.wait({self._pending}, timeout=self._timeout_s)
                if done:
                    answer: _Answer = self._pending.result()  # type: ignore[assignment] # of this very question
                    return answer
            raise MpsError(
                f"the driver has not told its compute mode within {self._timeout_s:g} s", "see `dmesg | grep -i nvrm`"
            )
