"""Keeps node state where there is no cluster: no pods to evict, no scheduler, and a state file on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import threading
from typing import TYPE_CHECKING

from provision.cluster.errors import StateFileError
from provision.cluster.record import document_of, record_of
from provision.cluster.state_file import Entry, read_state, write_state
from provision.rollout.cluster import Eviction, EvictionOutcome
from provision.rollout.errors import ConflictError, HeldError
from provision.rollout.model import NodeView

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from provision.rollout.model import GpuPod, Record

_NOTHING = Entry()


class LocalCluster:
    """Machines without a cluster. A cordon is only remembered: it says that the node is out of service here."""

    def __init__(self, state_file: Path) -> None:
        self.name = f"state file {state_file}"
        self._path = state_file
        self._seen: dict[str, Entry] = {}
        self._mutex = threading.Lock()

    def observe(self, nodes: Collection[str]) -> dict[str, NodeView]:
        """Return what the state file has on each node; every machine counts as ready."""
        with self._mutex:
            entries = read_state(self._path)
            self._seen.update({name: entries.get(name, _NOTHING) for name in nodes})
            return {name: _view(name, self._seen[name]) for name in nodes}

    def write(self, node: str, record: Record | None, *, cordoned: bool | None = None) -> None:
        """Remember ``record`` and the cordon of a node that was observed before; on the disk when this returns."""
        with self._mutex:
            entries = read_state(self._path)
            before = entries.pop(node, _NOTHING)
            if before != self._seen[node]:
                raise ConflictError(
                    f"{node} was changed in {self.name} by somebody else meanwhile",
                    hint="run apply again: it continues from what is recorded now",
                )
            entry = Entry(
                record=None if record is None else document_of(record),
                cordoned=before.cordoned if cordoned is None else cordoned,
            )
            write_state(self._path, entries if entry == _NOTHING else entries | {node: entry})
            self._seen[node] = entry

    def evict(self, pod: GpuPod) -> Eviction:  # noqa: ARG002 - there are no pods
        """Return that the pod is gone: there are none."""
        return Eviction(outcome=EvictionOutcome.GONE)

    def has_runtime_class(self, name: str, handler: str) -> bool:  # noqa: ARG002 - nobody would read it
        """Return that none is needed: a RuntimeClass belongs to Kubernetes."""
        return True

    def ensure_runtime_class(self, name: str, handler: str) -> bool:  # noqa: ARG002 - nobody would read it
        """Return that nothing was created: a RuntimeClass belongs to Kubernetes."""
        return False

    @contextlib.contextmanager
    def lease(self, holder: str) -> Iterator[None]:
        """Hold a lock beside the state file; the kernel drops it with the process, so a killed one blocks nobody."""
        path = self._path.with_suffix(".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise StateFileError(f"lock {path} cannot be opened: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                who = file.read().strip() or "another process"
                raise HeldError(f"{who} is changing nodes of {self.name}", hint=f"wait for it (lock: {path})") from None
            file.truncate(0)
            file.write(f"{holder}\n")
            file.flush()
            yield


def _view(name: str, entry: Entry) -> NodeView:
    record = None if entry.record is None else record_of(entry.record)
    return NodeView(name=name, record=record, is_cordoned=entry.cordoned, is_ready=True, gpu_pods=())
