"""Defines the sections `rollout.waitFor` and `rollout.drain`: what has to leave a node, and how it is made to."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from msgspec import Meta

from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import DnsLabel, LabelSelector


class AtTimeout(Enum):
    """What happens when jobs have not ended in time."""

    EVICT = "evict"
    GIVE_UP = "giveUp"


class Leaving(Enum):
    """How pods are made to leave a node."""

    EVICT = "evict"
    WAIT = "wait"


class DaemonSets(Enum):
    """What is done about pods of DaemonSets that use a GPU."""

    IGNORE = "ignore"
    WAIT = "wait"
    EVICT = "evict"


class Processes(Enum):
    """What is done about processes outside of pods that hold a GPU."""

    WAIT = "wait"
    TERMINATE = "terminate"


class LeavingByClaims(Enum):
    """How pods are made to leave that have their GPUs by claims."""

    EVICT = "evict"
    TAINT = "taint"


class EvictionRequests(Enum):
    """Whether pods are asked to leave by EvictionRequests."""

    AUTO = "auto"
    NEVER = "never"


class PodSelection(Section, frozen=True, kw_only=True):
    """Pods by their labels, their namespaces, or both."""

    pod_selector: Annotated[
        LabelSelector,
        doc("Labels of the pods, as `kubectl get --selector` takes them; empty: all in the namespaces."),
    ] = ""
    namespaces: Annotated[
        tuple[DnsLabel, ...], doc("Namespaces of the pods; empty: all that the selector finds.", uniqueItems=True)
    ] = ()


class WaitFor(PodSelection, frozen=True, kw_only=True):
    """Pods that are to end by themselves before anything is evicted from a node."""

    timeout_minutes: Annotated[
        Annotated[int, Meta(ge=0, le=43_200)], doc("How long they may take to end; 0: as long as it takes.")
    ] = 0
    on_timeout: Annotated[
        AtTimeout,
        doc(
            "What happens to a node whose pods have not ended in time; evict: they are evicted as all others; giveUp: "
            "the node goes back into service as it was, and the next apply tries it again."
        ),
    ] = AtTimeout.EVICT


class ReplaceFirst(PodSelection, frozen=True, kw_only=True):
    """Pods whose replacements have to be ready elsewhere before they leave a node."""

    otherwise: Annotated[
        Leaving,
        doc(
            "Pods of which no second one can be started first, such as those of a StatefulSet; evict: as all others; "
            "wait: until they end, or drainTimeoutMinutes are over."
        ),
    ] = Leaving.EVICT

    @property
    def selects(self) -> bool:
        """Whether there may be any such pod."""
        return bool(self.pod_selector or self.namespaces)


class Drain(Section, frozen=True, kw_only=True):
    """How pods and processes that use a GPU are made to leave a node."""

    only_wait: Annotated[
        tuple[DnsLabel, ...],
        doc("Namespaces whose pods are never evicted: they are waited for until they end.", uniqueItems=True),
    ] = ()
    release_timeout_minutes: Annotated[
        Annotated[int, Meta(ge=1, le=1_440)] | None,
        doc("How long processes may take to let go of the GPUs; null: as long as drainTimeoutMinutes says."),
    ] = None
    without_controller: Annotated[
        Leaving,
        doc("Pods without a controller, which nothing restarts elsewhere; evict: as all others; wait: until they end."),
    ] = Leaving.EVICT
    with_empty_dir: Annotated[
        Leaving,
        doc("Pods with an emptyDir on disk, which ends with the pod; evict: as all others; wait: until they end."),
    ] = Leaving.EVICT
    daemon_sets: Annotated[
        DaemonSets,
        doc(
            "Pods of DaemonSets that use a GPU; ignore: they stay; wait: until somebody takes them away; evict: a "
            "taint keeps them off the node until it is back in service."
        ),
    ] = DaemonSets.IGNORE
    processes: Annotated[
        Processes,
        doc(
            "Processes of login sessions that hold a GPU; wait: until they end; terminate: they are asked to end and "
            "killed 20 seconds later. Services and containers are waited for in any case."
        ),
    ] = Processes.WAIT
    replace_first: Annotated[
        ReplaceFirst, doc("Pods whose replacements have to be ready elsewhere before they leave a node.")
    ] = ReplaceFirst()
    eviction_requests: Annotated[
        EvictionRequests,
        doc(
            "Whether pods are asked to leave by EvictionRequests (KEP-4563); auto: where the cluster serves them and "
            "something answers; never: by the Eviction API alone."
        ),
    ] = EvictionRequests.AUTO

    claims: Annotated[
        LeavingByClaims,
        doc(
            "Pods that have their GPUs by claims; evict: as all others, within their disruption budgets; taint: a "
            "DeviceTaintRule with NoExecute on the GPUs of the node has Kubernetes end them, each when it does not "
            "tolerate grapnel.dev/upgrade any longer, and whatever their budgets say. Kubernetes 1.37 or later; before "
            "it, they are evicted."
        ),
    ] = LeavingByClaims.EVICT

    @property
    def spares_pods(self) -> bool:
        """Whether pods may have to end by themselves, since they are never evicted."""
        return bool(self.only_wait) or Leaving.WAIT in (self.without_controller, self.with_empty_dir)
