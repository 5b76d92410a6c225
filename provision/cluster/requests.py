"""Writes down what administrators ask of a rollout of another process: to pause it, and to go on.

It is written where node state lives, so that it outlives whoever asks and whoever is asked. Nothing here needs the
lease: each change says what is to be, and leaves everything else as it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes.lease import LEASE, LEASES, pause_of, read_lease
from provision.cluster.kubernetes.objects.core import Lease
from provision.cluster.kubernetes.permissions import LEASE_NAME, LEASE_NAMESPACE
from provision.cluster.local.state_file import editing, write_state
from provision.cluster.pause import PAUSE, as_pause, document_of, encode_pause
from provision.rollout.errors import ClusterError
from provision.rollout.interface.pause import Pause

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from provision.cluster.kubernetes.api.client import Api

_ATTEMPTS = 5


class PausePlace(Protocol):
    """Where a pause is kept."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def pause(self, by: str, reason: str, since: datetime | None = None) -> tuple[Pause, Pause | None]:
        """Keep further nodes from beginning; return the pause, and the one that it replaces. Raises ClusterError.

        ``since`` is now where it is None.
        """

    def resume(self) -> Pause | None:
        """Let further nodes begin; return the pause that was there, None if there was none. Raises ClusterError."""


class LeasePauses:
    """Keeps a pause in an annotation of the lease, which needs no engine: it is made where there is none yet.

    The annotation alone is patched, whoever holds the lease, on the version that was read: each of two people is told
    what is replaced. An engine writes on the version that it has read as well: its next renewal is refused, it reads
    the pause, and renews again.
    """

    def __init__(self, api: Api) -> None:
        self.name = api.name
        self._api = api

    def pause(self, by: str, reason: str, since: datetime | None = None) -> tuple[Pause, Pause | None]:
        """Write the annotation, and the lease where there is none."""
        for _attempt in range(_ATTEMPTS):
            lease = read_lease(self._api)
            pause = Pause(by=by, since=since or self._api.now().replace(microsecond=0), reason=reason)
            text = encode_pause(pause)
            if self._create(text) if lease is None else self._patch(lease, text):
                return pause, None if lease is None else pause_of(lease.metadata.annotations)
        raise self._restless()

    def resume(self) -> Pause | None:
        """Take the annotation away."""
        for _attempt in range(_ATTEMPTS):
            lease = read_lease(self._api)
            before = None if lease is None else pause_of(lease.metadata.annotations)
            if lease is None or before is None or self._patch(lease, None):
                return before
        raise self._restless()

    def _restless(self) -> ClusterError:
        return ClusterError(f"{self.name}: the lease {LEASE_NAME} does not come to rest", hint="try again")

    def _patch(self, lease: Lease, text: str | None) -> bool:
        """Set or remove the annotation on exactly that version; return False where there is another one, or none."""
        metadata = {"resourceVersion": lease.metadata.resource_version, "annotations": {PAUSE: text}}
        request = Request(method="PATCH", path=LEASE, body={"metadata": metadata}, content_type=MERGE_PATCH)
        return self._send(request)

    def _create(self, text: str) -> bool:
        """Make a lease without a holder; return False where there is one by now."""
        metadata = {
            "name": LEASE_NAME,
            "namespace": LEASE_NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "grapnel"},
            "annotations": {PAUSE: text},
        }
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
        return self._send(Request(method="POST", path=LEASES, body=body))

    def _send(self, request: Request) -> bool:
        try:
            self._api.call(request, Lease, expected=(NOT_FOUND, CONFLICT))
        except StatusError:
            return False
        return True


class StateFilePauses:
    """Keeps a pause in the state file of an inventory."""

    def __init__(self, state_file: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.name = f"state file {state_file}"
        self._path = state_file
        self._clock = clock

    def pause(self, by: str, reason: str, since: datetime | None = None) -> tuple[Pause, Pause | None]:
        """Write it into the file."""
        pause = Pause(by=by, since=since or self._clock().replace(microsecond=0), reason=reason)
        with editing(self._path) as found:
            write_state(self._path, found.nodes, document_of(pause))
            return pause, as_pause(found.pause)

    def resume(self) -> Pause | None:
        """Take it out of the file."""
        with editing(self._path) as found:
            if found.pause is not None:
                write_state(self._path, found.nodes, None)
            return as_pause(found.pause)


class MixedPauses:
    """Keeps a pause in the state file and on the lease, for a fleet whose nodes belong to both.

    A rollout of all of its nodes reads both, one of some nodes perhaps only one of them. The file is the first to be
    written and the last to be cleared, and both say the same, so that an engine that reads both sees one pause.
    """

    def __init__(self, in_file: PausePlace, on_lease: PausePlace) -> None:
        self.name = f"{in_file.name} and {on_lease.name}"
        self._in_file = in_file
        self._on_lease = on_lease

    def pause(self, by: str, reason: str, since: datetime | None = None) -> tuple[Pause, Pause | None]:
        """Write it in both places."""
        written, before = self._in_file.pause(by, reason, since)
        _, other = self._on_lease.pause(by, reason, written.since)
        return written, before or other

    def resume(self) -> Pause | None:
        """Take it away in both places, also where it was only in one."""
        other = self._on_lease.resume()
        return self._in_file.resume() or other
