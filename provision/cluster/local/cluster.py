"""Keeps node state where there is no cluster: no pods to evict, no scheduler, and a state file on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import threading
import time
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Final

from provision.cluster.errors import StateFileError
from provision.cluster.local.state_file import (
    NOTHING,
    Entry,
    StateFile,
    editing,
    lock_path,
    progress_path,
    read_state,
    replace_file,
    write_state,
)
from provision.cluster.pause import as_pause
from provision.cluster.progress import encode_progress
from provision.cluster.record import document_of, record_of
from provision.rollout.errors import ConflictError, HeldError
from provision.rollout.interface.cluster import Eviction, EvictionOutcome, OneByOne
from provision.rollout.model import NodeView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import GpuPod, Record

PUBLISH_S: Final = 1.0  # between two changes of what is published
_ATTEMPTS: Final = 20
_RETRY_S: Final = 0.05


class LocalCluster(OneByOne):
    """Machines without a cluster. A cordon is only remembered: it says that the node is out of service here."""

    def __init__(self, state_file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = f"state file {state_file}"
        self._path = state_file
        self._clock = clock
        self._standing: Standing | None = None
        self._published: Standing | None = None
        self._published_at = clock() - PUBLISH_S
        self._seen: dict[str, Entry] = {}
        self._views: dict[str, tuple[Entry, NodeView]] = {}
        self._known: StateFile | None = None
        self._mutex = threading.Lock()

    def observe(self, nodes: Collection[str]) -> dict[str, NodeView]:
        """Return what the state file has on each node, the same object while it is the same; all count as ready."""
        with self._mutex:
            found = self._known = read_state(self._path)
            for name in nodes:
                entry = found.nodes.get(name, NOTHING)
                if name not in self._views or self._views[name][0] != entry:
                    self._views[name] = (entry, view_of_entry(name, entry))
                self._seen[name] = entry
            return {name: self._views[name][1] for name in nodes}

    def paused(self) -> Pause | None:
        """Return the pause as it was at the last `observe`; before the first one, as it is now."""
        known = self._known
        return as_pause((read_state(self._path) if known is None else known).pause)

    def write(self, node: str, record: Record | None, *, cordoned: bool | None = None) -> None:
        """Remember ``record`` and the cordon of a node that was observed before; on the disk when this returns."""
        with self._mutex, editing(self._path) as found:
            before = found.nodes.get(node, NOTHING)
            if not _is_untouched(self._seen[node], before):
                raise ConflictError(
                    f"{node} was changed in {self.name} by somebody else meanwhile",
                    hint="run apply again: it continues from what is recorded now",
                )
            entry = Entry(
                record=None if record is None else document_of(record),
                cordoned=before.cordoned if cordoned is None else cordoned,
                skipped=before.skipped,
            )
            write_state(self._path, found.nodes | {node: entry}, found.pause)
            self._seen[node] = entry

    def evict(self, pod: GpuPod) -> Eviction:  # there are no pods
        """Return that the pod is gone: there are none."""
        return Eviction(outcome=EvictionOutcome.GONE)

    def has_runtime_class(self, name: str, handler: str) -> bool:  # it would not be read
        """Return that none is needed: a RuntimeClass belongs to Kubernetes."""
        return True

    def ensure_runtime_class(self, name: str, handler: str) -> bool:  # it would not be read
        """Return that nothing was created: a RuntimeClass belongs to Kubernetes."""
        return False

    @contextlib.contextmanager
    def lease(self, holder: str) -> Iterator[None]:
        """Hold a lock beside the state file; the kernel drops it with the process, so a killed one blocks no other."""
        path = lock_path(self._path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise StateFileError(f"lock {path} cannot be opened: {error.strerror}") from error
        with file:
            if not _lock(file):
                file.seek(0)
                who = file.read().strip() or "another process"
                raise HeldError(f"{who} is changing nodes of {self.name}", hint=f"wait for it (lock: {path})")
            file.truncate(0)
            file.write(f"{holder}\n")
            file.flush()
            self._standing = self._published = None
            with contextlib.suppress(OSError):
                progress_path(self._path).unlink()  # of the run before
            try:
                yield
            finally:
                self._write_progress()

    def check_lease(self) -> None:
        """Do nothing: a lock of the kernel is never lost by a process that lives."""

    def publish(self, standing: Standing) -> None:
        """Write it beside the state file: at once, but no more often than every ``PUBLISH_S``."""
        self._standing = standing
        if self._clock() - self._published_at >= PUBLISH_S:
            self._write_progress()

    def _write_progress(self) -> None:
        """Write what is new; a disk that is full must not end a rollout whose records can still be written."""
        standing, before = self._standing, self._published
        if standing is None or (before is not None and replace(standing, time=before.time) == before):
            return
        with contextlib.suppress(OSError):
            replace_file(progress_path(self._path), f"{encode_progress(standing)}\n".encode(), lasting=False)
        self._published, self._published_at = standing, self._clock()


def _lock(file: IO[str]) -> bool:
    """Lock the file unless another process has; who only looks whether it is locked has it for a moment."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_RETRY_S)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _is_untouched(seen: Entry, now: Entry) -> bool:
    """Return whether what was decided on is still so; that the node is skipped is for later decisions."""
    return (seen.record, seen.cordoned) == (now.record, now.cordoned)


def view_of_entry(name: str, entry: Entry) -> NodeView:
    """Return what an entry of the state file says of a machine."""
    record = None if entry.record is None else record_of(entry.record)
    return NodeView(name=name, record=record, is_cordoned=entry.cordoned, is_ready=True, is_skipped=entry.skipped)
