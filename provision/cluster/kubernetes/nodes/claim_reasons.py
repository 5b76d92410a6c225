"""Says who has what by a ResourceClaim, or why it was given nothing: what was read of it, in words. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.nodes.claim_devices import devices_for, ways_of
from provision.cluster.kubernetes.nodes.device_fit import pools_of
from provision.cluster.kubernetes.nodes.pod_reasons import PodReasons, Said, waits_for_node
from provision.cluster.kubernetes.pods.gpu_pods import FINISHED
from provision.rollout.status.reported import CLASS, MIG_CLASS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.cluster.kubernetes.nodes.device_fit import Pools
    from provision.cluster.kubernetes.objects.claims import (
        Constraint,
        DescribedSlice,
        DeviceClass,
        ResourceClaim,
    )
    from provision.cluster.kubernetes.objects.pods import AskedPod

PAGE: Final = "docs/dra.md"
_TODOS: Final = 6
_OF_OTHERS: Final = ".devices.grapnel.dev"  # ends the names of classes of other devices than GPUs
# What grapnel's drivers serve where that is declared, or not at all, by classes and drivers.
_UNSERVED: Final = {
    "compute-domain": (
        "compute-domain.nvidia.com",
        "no node gives its IMEX channel to ComputeDomains",
        "declare plugin.computeDomains for nodes of an NVLink clique: docs/dra/domains.md",
    ),
    "vfio": (
        "vfio.gpu.nvidia.com",
        "grapnel gives no GPU to virtual machines by claims",
        f"NVIDIA's DRA driver serves it; {PAGE} says what grapnel's does not",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFacts:
    """What was read about a claim.

    ``pods`` are those that use it. ``classes`` are by their names, None where there is none; those that could not be
    read are not in it. ``slices`` and ``claims`` are all of the cluster's, None where they could not be read.
    ``warnings`` are Events about its pods, ``unread`` what could not be looked at, with the reason.
    """

    claim: ResourceClaim
    pods: tuple[AskedPod, ...] | None = ()
    classes: Mapping[str, DeviceClass | None]
    slices: tuple[DescribedSlice, ...] | None = ()
    claims: tuple[ResourceClaim, ...] | None = ()
    warnings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def explain_claim(facts: ClaimFacts) -> PodReasons:
    """Return who has what by a claim, or why it has nothing."""
    claim = facts.claim
    pools = pools_of(facts.slices or (), facts.claims or ())
    said = [Said("asks", words) for words in _asks(claim)]
    said += _unserved(facts)
    said += _has(facts, pools) if claim.results else _waits(facts, pools)
    said += [Said("event", each) for each in facts.warnings]
    said += [Said("not known", each) for each in facts.unread]
    todo = dict.fromkeys(each.do for each in said if each.do)
    head = f"{claim.metadata.namespace}/{claim.metadata.name}: {_state(facts)}"
    return PodReasons(head, tuple((each.label, each.text) for each in said), tuple(todo)[:_TODOS])


def classes_of(claim: ResourceClaim) -> list[str]:
    """Return the names of the classes that a claim names."""
    every = (each for request in claim.spec.devices.requests for _, each in ways_of(request))
    return list(dict.fromkeys(each.device_class_name for each in every))


def _state(facts: ClaimFacts) -> str:
    claim = facts.claim
    if claim.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if claim.results:
        return "has its devices"
    if facts.pods is not None and not any(map(waits_for_node, facts.pods)):
        return "has no device, and no pod that waits for it"
    return "waits for devices"


def _asks(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests:
        ways = ways_of(request)
        for place, (name, each) in enumerate(ways):
            count = "all of a node" if each.allocation_mode == "All" else str(max(1, each.count))
            sizes = "".join(f", {amount} {what}" for what, amount in sorted(each.capacity.requests.items()))
            watches = ", to watch (admin access)" if each.admin_access else ""
            where = "".join(f", where `{' '.join(one.cel.expression.split())}`" for one in each.selectors if one.cel)
            otherwise = "or " if place else ""
            yield f"{otherwise}request {name}: {count} {each.device_class_name}{sizes}{watches}{where}"
        if not ways:
            yield f"request {request.name}, in a form that is not known here"
    for constraint in claim.spec.devices.constraints:
        yield _constrained(constraint)


def _constrained(constraint: Constraint) -> str:
    of = f"requests {', '.join(constraint.requests)}" if constraint.requests else "all requests"
    if constraint.match_attribute:
        return f"{of} with one {constraint.match_attribute}"
    if constraint.distinct_attribute:
        return f"{of} with a {constraint.distinct_attribute} each"
    return f"{of}, with a constraint that is not known here"


def _unserved(facts: ClaimFacts) -> Iterator[Said]:
    """Yield what grapnel does not serve, where no other driver does."""
    claim = facts.claim
    told = {each.opaque.driver for each in claim.spec.devices.config if each.opaque is not None}
    published = {each.spec.driver for each in facts.slices or ()}
    for prefix, (driver, why, do) in _UNSERVED.items():
        names = [each for each in classes_of(claim) if each.startswith(f"{prefix}-") or each == driver]
        if (names or driver in told) and driver not in published and not claim.results:
            of = ", ".join(names) or driver
            yield Said("not served", f"{of}: {why}", do)


def _has(facts: ClaimFacts, pools: Pools) -> Iterator[Said]:
    """Yield what a claim has, how its driver and the slices tell of it, and which pods use it."""
    claim = facts.claim
    known = {each.key: each for each in pools.devices}
    for each in claim.results:
        device = known.get((each.driver, each.pool, each.device))
        model = device.seen.shown.get("productName", "") if device is not None else ""
        where = device.node if device is not None else each.pool
        taken = "".join(f", {amount} {name}" for name, amount in sorted(each.consumed_capacity.items()))
        watched = ", to watch (admin access)" if each.admin_access else ""
        yield Said("has", f"request {each.request}: {each.device} of {where} ({model or each.driver}){taken}{watched}")
        if device is None and facts.slices is not None:
            yield Said("device", f"{each.device} of {each.pool} is not published any more")
        for taint in device.device.taints if device is not None else ():
            yield Said("device", f"{each.device} has the taint {taint.key}:{taint.effect}")
    for told in claim.status.devices:
        words = [": ".join(filter(None, (one.type, one.status, one.message or one.reason))) for one in told.conditions]
        yield Said("driver", f"{told.driver} of {told.device}: {', '.join(words) or 'nothing more'}")
    yield from _pods(facts)


def _pods(facts: ClaimFacts) -> Iterator[Said]:
    """Yield for which pods a claim is kept, and how far they are: a container runs when all claims are prepared."""
    claim, pods = facts.claim, {each.metadata.name: each for each in facts.pods or ()}
    for each in claim.status.reserved_for:
        pod = pods.get(each.name)
        if pod is None or each.resource != "pods":
            gone = ", which is not there" if facts.pods is not None and each.resource == "pods" else ""
            yield Said("reserved", f"for {each.resource} {each.name}{gone}")
            continue
        node, name = pod.spec.node_name, _quoted(pod)
        if pod.status.phase == "Running":
            do = f"on {node}: `grapnel-node explain {name}` says more"
            yield Said("pod", f"{each.name} runs on {node}: the claim is prepared there", do)
        elif pod.status.phase in FINISHED:
            yield Said("pod", f"{each.name} has ended: the claim is about to be given back")
        else:
            yield Said("pod", f"{each.name} does not run yet on {node}", f"`grapnel explain pod {name}`")
    if not claim.status.reserved_for:
        yield Said("reserved", "for no pod: it is given back when the cluster gets to it")


def _waits(facts: ClaimFacts, pools: Pools) -> Iterator[Said]:
    """Yield which requests no device fits, node by node, or that nothing here is in the way."""
    claim = facts.claim
    if facts.pods is not None and not facts.pods:
        why = "none uses it: the scheduler gives a claim its devices as it finds a node for a pod with it"
        yield Said("pod", why, "name it in a pod's `resourceClaims`")
    for pod in facts.pods or ():
        said = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        words = "" if said is None or said.status == "True" else said.message or said.reason
        where = f"is on {pod.spec.node_name}" if pod.spec.node_name else "waits for a node"
        do = f"`grapnel explain pod {_quoted(pod)}` says what else is in its way"
        yield Said("pod", f"{pod.metadata.name} {where}{f': {words}' if words else ''}", do)
    for name in classes_of(claim):
        if name in facts.classes and facts.classes[name] is None:
            yield Said("class", f"DeviceClass {name} is not there: nothing is given", _make_class(name))
    if facts.slices is None:
        return
    yield from (Said("pool", each) for each in pools.troubles)
    if facts.claims is None:
        yield Said("not known", "which devices other claims have: those that fit may be theirs")
    yield from devices_for(claim, facts.classes, pools)


def _quoted(pod: AskedPod) -> str:
    return shlex.quote(f"{pod.metadata.namespace}/{pod.metadata.name}")


def _make_class(name: str) -> str:
    if name in (CLASS, MIG_CLASS):
        return "`kubectl apply -f deploy/dra/deviceclasses.yaml`, or `dra.deviceClasses: true` in the chart"
    if name.endswith(_OF_OTHERS):
        return "`kubectl apply -f deploy/dra/otherclasses.yaml`, or name it in `dra.otherClasses` of the chart"
    return f"`kubectl get deviceclasses` shows those that are there: make {name}, or name another one"
