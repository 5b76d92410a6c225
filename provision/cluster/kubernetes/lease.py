"""Keeps two engines of one cluster apart, and two replicas of a controller: a Lease each, renewed by a thread.

``grapnel-upgrade`` is held by whoever changes nodes, while that goes on; ``grapnel-controller`` by the replica that
leads, for as long as it does.

Whether another process's lease has run out is judged by the API server's clock, in which its times are written, too: an
operator's machine may be minutes off. Whether our own still holds is judged by a clock that also runs while this
machine sleeps.
"""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.objects.core import Lease, LeaseSpec
from provision.cluster.kubernetes.permissions import LEADER_NAME, LEASE_NAME, LEASE_NAMESPACE
from provision.cluster.pause import PAUSE, decode_pause
from provision.rollout.errors import ClusterError, HeldError, LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing

DURATION_S: Final = 45  # after this long without a sign of life another engine may go on
RENEW_S: Final = 10.0
DEADLINE_S: Final = 35.0  # ours counts as lost this long after its last renewal, before anybody else may take it
_RETRY_S: Final = 2.0
_TIMEOUT_S: Final = 5.0
_ATTEMPTS: Final = 5
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
PROGRESS: Final = "grapnel.dev/progress"  # annotation: docs/contracts/rollout-progress
LEASE: Final = f"{LEASES}/{LEASE_NAME}"
_DOES: Final = {LEASE_NAME: "is changing nodes of", LEADER_NAME: "is the leading controller of"}
_GOES_ON: Final = {
    LEASE_NAME: "nothing more is changed; when no other apply is running, the same command continues from here",
    LEADER_NAME: "nothing more is changed; the replica that leads by now goes on from what is recorded",
}


def boot_time() -> float:
    """Return seconds since the machine started, those included in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_free(spec: LeaseSpec, holder: str, now: datetime) -> bool:
    """Return whether ``holder`` may take the lease: it has no holder, it has run out, or it is its own from before."""
    if spec.holder_identity in ("", holder) or spec.renew_time is None:
        return True
    until = runs_until(spec)
    return until is not None and now > until


def runs_until(spec: LeaseSpec) -> datetime | None:
    """Return when a lease has run out unless it is renewed; None for one that was never held."""
    return (
        None
        if spec.renew_time is None
        else spec.renew_time + timedelta(seconds=spec.lease_duration_seconds or DURATION_S)
    )


def read_lease(api: Api, name: str = LEASE_NAME) -> Lease | None:
    """Return the lease of that name, None if there is none yet. Raises ClusterError."""
    request = Request(method="GET", path=f"{LEASES}/{name}", timeout_s=_TIMEOUT_S)
    try:
        return api.call(request, Lease, expected=(NOT_FOUND,), patience_s=0)
    except StatusError:
        return None


def holder_now(api: Api, name: str = LEASE_NAME) -> str:
    """Return who has a lease that has not run out, empty where none has. Raises ClusterError."""
    lease = read_lease(api, name)
    until = None if lease is None else runs_until(lease.spec)
    return "" if lease is None or until is None or api.now() > until else lease.spec.holder_identity


def pause_of(annotations: Mapping[str, str]) -> Pause | None:
    """Return the pause that is written on the lease."""
    text = annotations.get(PAUSE)
    return None if text is None else decode_pause(text)


class Tenure:
    """One engine's hold on the lease of that ``name``, from `acquire` to `release`.

    ``progress`` returns what every write of the lease carries along in an annotation: it costs no request of its own.
    Annotations of others are kept: a write replaces the whole lease, on exactly the version that they were read with.
    """

    def __init__(
        self,
        api: Api,
        holder: str,
        clock: Callable[[], float] = boot_time,
        *,
        name: str = LEASE_NAME,
        progress: Callable[[], str] = lambda: "",
    ) -> None:
        self._api = api
        self._name = name
        self._path = f"{LEASES}/{name}"
        self._progress = progress
        self._holder = holder
        self._clock = clock
        self._acquired = datetime.now(UTC)
        self._renewed = clock()
        self._version = ""
        self._annotations: Mapping[str, str] = {}
        self._transitions = 0
        self._lost = ""

    def acquire(self) -> None:
        """Take the lease. Raises HeldError while another process has it."""
        for _attempt in range(_ATTEMPTS):
            lease = read_lease(self._api, self._name)
            self._acquired = self._api.now()
            self._annotations = {} if lease is None else lease.metadata.annotations
            if lease is None:
                written = self._write("POST", LEASES, "", 0)
            elif is_free(lease.spec, self._holder, self._acquired):
                transitions = lease.spec.lease_transitions + (lease.spec.holder_identity != self._holder)
                written = self._write("PUT", self._path, lease.metadata.resource_version, transitions)
            else:
                raise self._held(lease.spec)
            if written:
                return
        raise HeldError(f"{self._api.name}: several engines want the lease {self._name} at once", hint="try again")

    def renew(self) -> None:
        """Say that this engine lives, or learn that another process has the lease. May be repeated after ClusterError.

        A lease that was deleted is made again by that, as the API server does for leases, unless another process was
        quicker.
        """
        self._rewrite(self._holder)

    def _rewrite(self, holder: str) -> None:
        """Write the lease again, on whatever version of it is ours."""
        for _attempt in range(_ATTEMPTS):
            is_written = self._write("PUT", self._path, self._version, self._transitions, holder=holder)
            if is_written or not self._is_only_touched():
                return

    def _is_only_touched(self) -> bool:
        """Take over what others have changed on the lease, such as a pause, unless that was to take it."""
        lease = read_lease(self._api, self._name)
        if lease is None:
            return False
        if lease.spec.holder_identity != self._holder:
            self._lost = f"{lease.spec.holder_identity or 'somebody'} took it"
        elif lease.spec.acquire_time != self._acquired:
            self._lost = f"another process of {self._holder} took it"
        else:
            self._version, self._annotations = lease.metadata.resource_version, lease.metadata.annotations
            return True
        return False

    def check(self) -> None:
        """Raise LeaseLostError when the lease is no longer certain to be held."""
        if not self._lost and (silent_s := self._clock() - self._renewed) > DEADLINE_S:
            self._lost = f"it could not be renewed for {silent_s:.0f} s"
        if self._lost:
            raise LeaseLostError(
                f"the lease {self._name} of {self._api.name} is lost: {self._lost}", hint=_GOES_ON[self._name]
            )

    def release(self) -> None:
        """Let others go on at once; when that fails they wait until the lease has run out."""
        if not self._lost:
            with contextlib.suppress(ClusterError):
                self._rewrite("")

    def lose(self, reason: str) -> None:
        """Remember that the lease cannot be held any longer."""
        self._lost = self._lost or reason

    @property
    def pause(self) -> Pause | None:
        """The pause that was on the lease when it was last written or read."""
        return pause_of(self._annotations)

    @property
    def is_uninstalling(self) -> bool:
        """Whether whoever holds the lease is asked to begin nothing further, since it is about to be uninstalled."""
        return is_uninstalling(self._annotations, self._api.now())

    def publish(self, standing: Standing) -> None:
        """Do nothing: ``progress`` is asked instead, whenever the lease is written."""

    @property
    def is_lost(self) -> bool:
        """Whether it is known to be lost."""
        return bool(self._lost)

    def _write(self, method: str, path: str, version: str, transitions: int, *, holder: str | None = None) -> bool:
        """Write the lease on that version of it; return False when there is another one."""
        began = self._clock()
        body = self._body(version, transitions, self._holder if holder is None else holder)
        request = Request(method=method, path=path, body=body, timeout_s=_TIMEOUT_S)
        try:
            lease = self._api.call(request, Lease, expected=(CONFLICT, NOT_FOUND), patience_s=0)
        except StatusError:
            return False
        self._version, self._transitions, self._renewed = lease.metadata.resource_version, transitions, began
        self._annotations = lease.metadata.annotations
        return True

    def _body(self, version: str, transitions: int, holder: str) -> dict[str, Any]:
        told = {key: text for key, text in self._annotations.items() if key != PROGRESS}
        if progress := self._progress():
            told[PROGRESS] = progress
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self._name,
                "namespace": LEASE_NAMESPACE,
                "labels": {"app.kubernetes.io/managed-by": "grapnel"},
                **({"annotations": told} if told else {}),
                **({"resourceVersion": version} if version else {}),
            },
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION_S,
                "acquireTime": _micro_time(self._acquired),
                "renewTime": _micro_time(self._api.now()),
                "leaseTransitions": transitions,
            },
        }

    def _held(self, spec: LeaseSpec) -> HeldError:
        since = "" if spec.acquire_time is None else f" since {spec.acquire_time:%Y-%m-%d %H:%M:%S} UTC"
        return HeldError(
            f"{spec.holder_identity} {_DOES[self._name]} {self._api.name}{since}",
            hint=f"wait for it; if it was killed, its lease {LEASE_NAMESPACE}/{self._name} runs out within "
            f"{spec.lease_duration_seconds or DURATION_S} s",
        )


@contextlib.contextmanager
def hold(tenure: Tenure, renew_s: float = RENEW_S) -> Iterator[None]:
    """Hold the lease while inside, renewed by a thread every ``renew_s``."""
    tenure.acquire()
    stop = threading.Event()
    thread = threading.Thread(target=_keep, args=(tenure, stop, renew_s), name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        tenure.release()


def _keep(tenure: Tenure, stop: threading.Event, renew_s: float) -> None:
    pause_s = renew_s
    while not stop.wait(pause_s) and not tenure.is_lost:
        try:
            tenure.renew()
            pause_s = renew_s
        except ClusterError:  # `check` counts the time since the last success
            pause_s = _RETRY_S
        except BaseException as error:
            tenure.lose(f"renewing it failed: {type(error).__name__}")
            raise


def _micro_time(moment: datetime) -> str:
    """Return Kubernetes' MicroTime: exactly six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


UNINSTALLING: Final = "grapnel.dev/uninstalling-until"  # annotation of the lease: RFC 3339, by the API server's clock


def is_uninstalling(annotations: Mapping[str, str], now: datetime) -> bool:
    """Tell whether a lease asks its holder to begin nothing further; what is no time asks for nothing."""
    try:
        until = datetime.fromisoformat(annotations.get(UNINSTALLING, ""))
    except ValueError:
        return False
    return now < (until if until.tzinfo is not None else until.replace(tzinfo=UTC))
