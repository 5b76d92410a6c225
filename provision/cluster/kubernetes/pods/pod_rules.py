"""Derives from the declarations of a fleet which of its pods use a GPU, are waited for, or are left alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DaemonSets, Entitlement, EvictionRequests, Leaving, LeavingByClaims
from provision.declaration.spec.values.label_selector import LabelSelector, parse_selector

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from provision.cluster.kubernetes.objects.pods import Toleration
    from provision.declaration.spec.model import StackSpec

NOTHING: Final = ""
DRAIN_SKIP: Final = "nvidia.com/gpu-driver-upgrade-drain.skip"  # NVIDIA's label of pods that are not evicted
TAINT: Final = "grapnel.dev/upgrade"  # keeps what was evicted off the node until it is back in service
TAINT_EFFECT: Final = "NoSchedule"
NAMESPACE: Final = "grapnel-system"  # of the controller, its Jobs and the daemon, unless it is told otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRules:
    """What the pods of a fleet are judged by, the same for all of its nodes.

    ``resources`` are the declared resource names; everything in ``nvidia.com/`` counts besides. ``giving_classes`` are
    RuntimeClasses whose pods can get a GPU without asking for one. Pods that ``selector`` finds in ``namespaces``
    (empty: in all) are waited for before others are evicted; those of ``only_wait``, those without a controller where
    it ``keeps_bare`` and those with an emptyDir on disk where it ``keeps_data`` are never evicted. ``first`` selects
    those whose replacements have to be ready on other nodes before they leave, in ``first_namespaces``; where that is
    not possible, it ``keeps_unreplaced`` or evicts them. ``requests``: pods are asked to leave by EvictionRequests,
    with ``taints`` those that have GPUs by claims are ended by taints of these. ``takes_all``: pods without a GPU have
    to leave as well, since the node reboots. ``namespace`` is where pods of grapnel are: whoever may make others there
    is root on every node anyway.
    """

    resources: frozenset[str]
    giving_classes: frozenset[str] = frozenset()
    selector: LabelSelector | None = None
    namespaces: frozenset[str] = frozenset()
    only_wait: frozenset[str] = frozenset()
    daemon_sets: DaemonSets = DaemonSets.IGNORE
    keeps_bare: bool = False
    keeps_data: bool = False
    first: LabelSelector | None = None
    first_namespaces: frozenset[str] = frozenset()
    keeps_unreplaced: bool = False
    requests: bool = False
    taints: bool = False
    takes_all: bool = False
    namespace: str = NAMESPACE

    def awaits(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether pods of these labels are waited for."""
        return _selects(self.selector, self.namespaces, namespace, labels)

    def replaces_first(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether the replacements of pods of these labels have to be ready on other nodes before they leave."""
        return _selects(self.first, self.first_namespaces, namespace, labels)

    @property
    def replacing(self) -> frozenset[str]:
        """The namespaces in which pods may be replaced first, empty text for all of them."""
        if self.first is None:
            return frozenset()
        return self.first_namespaces or frozenset({NOTHING})


def _selects(
    selector: LabelSelector | None, namespaces: Collection[str], namespace: str, labels: Mapping[str, str]
) -> bool:
    if selector is None or (namespaces and namespace not in namespaces):
        return False
    return selector.matches(labels)


def pod_rules(stacks: Collection[StackSpec]) -> PodRules:
    """Return the rules of a fleet; all of its nodes declare the same about pods."""
    resources = frozenset(stack.plugin.resource for stack in stacks)
    first = next(iter(stacks), None)
    if first is None:
        return PodRules(resources=resources)
    wait, drain, replace = first.rollout.wait_for, first.rollout.drain, first.rollout.drain.replace_first
    return PodRules(
        resources=resources,
        giving_classes=frozenset(
            handler
            for stack in stacks
            for handler in stack.runtime.handlers
            if stack.runtime.enabled and stack.runtime.entitlement is Entitlement.ENV
        ),
        selector=parse_selector(wait.pod_selector) if wait.pod_selector or wait.namespaces else None,
        namespaces=frozenset(wait.namespaces),
        only_wait=frozenset(drain.only_wait),
        daemon_sets=drain.daemon_sets,
        keeps_bare=drain.without_controller is Leaving.WAIT,
        keeps_data=drain.with_empty_dir is Leaving.WAIT,
        first=parse_selector(replace.pod_selector) if replace.selects else None,
        first_namespaces=frozenset(replace.namespaces),
        keeps_unreplaced=replace.otherwise is Leaving.WAIT,
        requests=drain.eviction_requests is EvictionRequests.AUTO,
        taints=drain.claims is LeavingByClaims.TAINT,
    )


def tolerates(tolerations: Iterable[Toleration]) -> bool:
    """Tell whether a pod may be started on a node that has our taint."""
    return any(each.effect in (NOTHING, TAINT_EFFECT) and tolerates_taint(each) for each in tolerations)


def tolerates_taint(toleration: Toleration) -> bool:
    """Tell whether a toleration is about our taint, of which effect ever: it has no value."""
    is_by_key = bool(toleration.key) and not toleration.value
    return toleration.key in (NOTHING, TAINT) and (toleration.operator == "Exists" or is_by_key)
