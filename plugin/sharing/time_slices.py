"""Has the driver divide the time of GPUs in longer or shorter slices, by NVIDIA's own program, and as before again.

NVML has no call for it: `nvidia-smi compute-policy --set-timeslice`, as NVIDIA's DRA driver does. It lasts until the
driver's module is unloaded. What was set is noted before it is done, in /run, which a reboot forgets as well; so a GPU
gets its own slices back whoever was killed in between. Not here: who wants which (`plugin.dra`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from plugin.base.errors import MpsError, os_reason
from plugin.driver.uuid import is_gpu_uuid
from plugin.sharing.mps.programs import run_program

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from plugin.base.log import Logger

_NUMBERS = {"": 0, "Short": 1, "Medium": 2, "Long": 3}
_ANSWER_S = 20.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0
_SETTING = "its time slices are being set"


class TimeSlices:
    """Used in the event loop. `folder` is for notes; `changed` hears that a GPU is as it is wanted, or cannot be."""

    def __init__(self, folder: Path, program: Path, changed: Callable[[], None], logger: Logger) -> None:
        self._folder = folder
        self._program = program
        self._changed = changed
        self._log = logger
        self._wanted: Mapping[str, str] = {}  # UUID → interval
        self._usable: Collection[str] = ()
        self._set: dict[str, str] = {}  # by this process
        self._problems: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def want(self, intervals: Mapping[str, str], usable: Collection[str]) -> None:
        """Have these GPUs sliced so, and others as the driver does by itself; only `usable` ones are asked for it."""
        if (intervals, usable) == (self._wanted, self._usable) or not (intervals or self._task or self._noted()):
            return
        self._wanted, self._usable = dict(intervals), usable
        # One that is ill or let go may come back with a driver that was loaded anew, which knows nothing of it.
        self._set = {uuid: interval for uuid, interval in self._set.items() if uuid in usable}
        self._wake.set()
        if self._task is None and not self._is_closed:
            self._task = asyncio.ensure_future(self._run())

    def problem(self, uuid: str) -> str:
        """Return why a GPU is not sliced as it is wanted, "" where it is."""
        wanted = self._wanted.get(uuid)
        is_right = self._set.get(uuid) == wanted if wanted else uuid not in self._noted()
        return "" if is_right else self._problems.get(uuid, _SETTING)

    @property
    def is_settled(self) -> bool:
        """Whether no GPU is sliced otherwise than it is wanted, as far as is known."""
        return self._noted() <= self._wanted.keys()

    async def close(self) -> None:
        """End; a program that runs comes to its end by itself. What is set stays: its claims do, too."""
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        pause_s = _FIRST_RETRY_S
        while True:
            self._wake.clear()
            if await self._all():
                pause_s = _FIRST_RETRY_S
                await self._wake.wait()
                continue
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause_s)
            pause_s = min(pause_s * 2, _LONGEST_RETRY_S)

    async def _all(self) -> bool:
        """Return whether each usable GPU is as it is wanted now."""
        due = {uuid: self._wanted.get(uuid, "") for uuid in self._noted() | self._wanted.keys()}
        usable = {uuid: interval for uuid, interval in due.items() if uuid in self._usable}
        is_right = True
        for uuid, interval in usable.items():
            if interval and self._set.get(uuid) == interval:
                continue
            try:
                await self._write(uuid, interval)
            except MpsError as error:
                is_right = False
                self._problems[uuid] = error.message
                self._log.standing(f"time slices of {uuid}", error.message, hint=error.hint or "see: nvidia-smi")
            else:
                self._problems.pop(uuid, None)
                self._log.standing(f"time slices of {uuid}")
                self._log.info("time slices set", gpu=uuid, interval=interval or "Default")
            self._changed()
        return is_right

    async def _write(self, uuid: str, interval: str) -> None:
        note = self._folder / uuid
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            note.touch(mode=0o600)
        except OSError as error:
            raise MpsError(f"{note} cannot be written: {os_reason(error)}") from error
        command = [str(self._program), "compute-policy", "-i", uuid, "--set-timeslice", str(_NUMBERS[interval])]
        await run_program(command, _ANSWER_S)
        if interval:
            self._set[uuid] = interval
        else:
            self._set.pop(uuid, None)
            with suppress(OSError):  # it is set once more at the next occasion
                note.unlink(missing_ok=True)

    def _noted(self) -> set[str]:
        """Return the GPUs that may have other slices than the driver's own."""
        with suppress(OSError):
            return {path.name for path in self._folder.iterdir() if is_gpu_uuid(path.name)}
        return set()
