"""Tells at once when a process ends that is not our child."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ExitWatch:
    """Watches one process at a time, in the event loop. Kernels before 5.3 cannot: what looks regularly has to do."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._pid = 0
        self._gone = 0  # systemd may name it a moment longer
        self._descriptor = -1

    @property
    def is_watching(self) -> bool:
        """Whether the process that was named last runs, as far as the kernel tells."""
        return self._descriptor >= 0

    def watch(self, pid: int) -> None:
        """Watch this process from now on, instead of another one; 0 is none."""
        if pid in {self._pid, self._gone}:
            return
        self.close()
        self._pid = pid
        try:
            self._descriptor = os.pidfd_open(pid) if pid else -1
        except OSError:  # it has ended, or the kernel is too old
            return
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._on_end)

    def close(self) -> None:
        """Watch nothing."""
        self._pid = 0
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _on_end(self) -> None:
        self._gone = self._pid
        self.close()
        self._ended()
