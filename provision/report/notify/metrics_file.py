"""Keeps a file of metrics for node_exporter's textfile collector while a rollout runs, on a thread of its own."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from provision.base.errors import GrapnelError
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.metrics import render_metrics
from provision.rollout.status.model import Seen, Tenant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.progress import RolloutProgress
    from provision.rollout.interface.standing import Standing

WRITE_S: Final = 10.0
SUFFIX: Final = ".prom"  # the collector reads no other files
_MODE: Final = 0o644  # node_exporter runs as another user


class MetricsFile:
    """Writes what the engine last said every ``write_s``, and once more at the end, when nobody is at work any more."""

    def __init__(self, path: Path, *, place: str, holder: str, write_s: float = WRITE_S) -> None:
        """Write a first page, so that a folder that cannot be written to is an error before anything is changed."""
        if path.suffix != SUFFIX:
            raise GrapnelError(f"--metrics-file {path}: its name does not end with {SUFFIX}", hint=f"{path}{SUFFIX}")
        self._path, self._place, self._holder, self._write_s = path, place, holder, write_s
        self._latest: tuple[Standing, Sequence[NodeState]] | None = None
        self._trouble = ""
        self._closing = threading.Event()
        try:
            replace(path, b"")
        except OSError as error:
            raise GrapnelError(
                f"--metrics-file {path}: {error.strerror}", hint="name a folder that you may write to"
            ) from error
        self._thread = threading.Thread(target=self._keep, name="metrics", daemon=True)
        self._thread.start()

    def hear(self, progress: RolloutProgress) -> None:
        """Do nothing: steps show in how the rollout stands."""

    def see(self, standing: Standing, nodes: Sequence[NodeState]) -> None:
        """Take note of how the rollout stands, and its nodes."""
        self._latest = (standing, nodes)

    def close(self) -> str:
        """Write the end, and return why the file could not be written."""
        self._closing.set()
        self._thread.join()
        return f"--metrics-file {self._path}: {self._trouble}" if self._trouble else ""

    def _keep(self) -> None:
        while not self._closing.wait(self._write_s):
            self._write(is_at_work=True)
        self._write(is_at_work=False)

    def _write(self, *, is_at_work: bool) -> None:
        if self._latest is None:
            return
        standing, nodes = self._latest
        tenant = Tenant(holder=self._holder, since=standing.began, heard=standing.time) if is_at_work else None
        views = {node.name: node.view for node in nodes}
        seen = Seen(place=self._place, time=standing.time, nodes=views, tenant=tenant, standing=standing)
        try:
            replace(self._path, render_metrics(fleet_status(seen)))
            self._trouble = ""
        except OSError as error:
            self._trouble = error.strerror or "it cannot be written"


def replace(path: Path, data: bytes) -> None:
    """Replace a file at once: the collector sees the old or the new one, and never the temporary one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).chmod(_MODE)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise
