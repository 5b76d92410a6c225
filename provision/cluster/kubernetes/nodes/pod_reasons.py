"""Says why a pod has the GPUs that it has, or none: what was read of it and of the nodes, in words. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.nodes.fit import EXPLAIN, UNSCHEDULABLE, alike
from provision.cluster.kubernetes.nodes.reported import devices_of
from provision.cluster.kubernetes.pods.gpu_pods import FINISHED, claim_names
from provision.declaration.fleet.series import in_series
from provision.report.runs.remedies import BARE
from provision.rollout.status.reported import WHOLE, only_gpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from provision.cluster.kubernetes.nodes.fit import Candidate, Obstacle
    from provision.cluster.kubernetes.objects.claims import ResourceClaim
    from provision.cluster.kubernetes.objects.core import RuntimeClass
    from provision.cluster.kubernetes.objects.pods import AskedPod, Container, ContainerStatus
    from provision.declaration.spec.model import Plugin
    from provision.report.runs.remedies import Invocation

GROUPS_SHOWN: Final = 8  # of nodes of which the same is so
_TODOS: Final = 6
_NAMES: Final = 10
_USUAL: Final = "nvidia"  # the handler where none is declared otherwise
_HOOK: Final = "grapnel-hook"
_NO_GPU: Final = "`grapnel apply`, if it was not applied yet; else on NODE: `journalctl -u grapnel-node`"
_FULL: Final = "all of it is taken: `kubectl get pods -A --field-selector spec.nodeName={quoted}` shows by whom"
_SCHEDULER: Final = "FailedScheduling"  # an Event of what the condition PodScheduled says
_BEGINS: Final = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """What was read about a pod.

    ``candidates`` are the cluster's Nodes; ``plugins`` and ``handlers`` what its GpuStacks declare, nothing where there
    are none. ``runtime_class`` is the one that the pod names; ``is_class_known`` is false where it could not be read.
    ``claims`` are its ResourceClaims, as far as they are there; None where they could not be read. ``warnings`` are
    Events about it, ``unread`` what could not be looked at, with the reason.
    """

    pod: AskedPod
    candidates: tuple[Candidate, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    handlers: tuple[str, ...] = ()
    runtime_class: RuntimeClass | None = None
    is_class_known: bool = True
    claims: tuple[ResourceClaim, ...] | None = ()
    warnings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodReasons:
    """What a pod is told to be: its state in one line, facts by their labels, and what would help."""

    head: str
    facts: tuple[tuple[str, str], ...]
    todo: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """One fact, and what would help there."""

    label: str
    text: str
    do: str = ""


def waits_for_node(pod: AskedPod) -> bool:
    """Tell whether a pod is still to be given a node."""
    return not pod.spec.node_name and pod.status.phase not in FINISHED


def asked_by(pod: AskedPod, plugins: Sequence[Plugin], claims: Iterable[ResourceClaim] = ()) -> dict[str, int]:
    """Return the devices that a pod asks for, by resource, or by class of its claims; GPUs alone, if any is one.

    Init containers run before the others and give back what they had, sidecars stay.
    """
    staying: Counter[str] = Counter()
    most: dict[str, int] = {}
    for each in pod.spec.containers:
        staying.update(_devices(each))
    for each in pod.spec.init_containers:
        if each.restart_policy == "Always":
            staying.update(_devices(each))
        else:
            most |= {name: max(number, most.get(name, 0)) for name, number in _devices(each).items()}
    for claim in claims:
        if not claim.is_extended:  # what it is for, containers ask for
            staying.update(claim.wanted)
    every = {name: max(staying[name], most.get(name, 0)) for name in [*staying, *most]}
    asked = {name: number for name, number in every.items() if number}
    return _gpus_of(asked, plugins) or asked


def explain_pod(facts: PodFacts, invocation: Invocation = BARE) -> PodReasons:
    """Return why a pod has what it has."""
    asked = asked_by(facts.pod, facts.plugins, facts.claims or ())
    has_gpu = bool(_gpus_of(asked, facts.plugins)) or bool(asked and not facts.plugins)
    said = [*_asks(facts, asked, has_gpu=has_gpu)]
    if has_gpu and not claim_names(facts.pod):  # what a claim has reaches containers of every class
        said += _class(facts, invocation)
    if waits_for_node(facts.pod):
        said += _unscheduled(facts, asked, invocation)
    else:
        said += _bound(facts, asked, invocation)
    said += [Said("event", each) for each in facts.warnings if not each.startswith(_SCHEDULER)]
    said += [Said("not known", each) for each in facts.unread]
    todo = dict.fromkeys(each.do for each in said if each.do)
    head = f"{facts.pod.metadata.namespace}/{facts.pod.metadata.name}: {_state(facts.pod)}"
    return PodReasons(head, tuple((each.label, each.text) for each in said), tuple(todo)[:_TODOS])


def _state(pod: AskedPod) -> str:
    status, node = pod.status, pod.spec.node_name
    if pod.metadata.deletion_timestamp is not None:
        return f"is being deleted{f', on {node}' if node else ''}"
    if status.phase in FINISHED:
        return f"has ended ({status.phase}{f', {status.reason}' if status.reason else ''}), and holds nothing"
    if not node:
        return "waits for a node"
    return f"runs on {node}" if status.phase == "Running" else f"is on {node}, and does not run yet"


def _asks(facts: PodFacts, asked: Mapping[str, int], *, has_gpu: bool) -> Iterator[Said]:
    pod, asking = facts.pod, 0
    for each in (*pod.spec.containers, *pod.spec.init_containers):
        if told := {name: number for name, number in _devices(each).items() if number and name in asked}:
            asking += 1
            yield Said("asks", f"{_numbers(told)}, container {each.name}")
    if asking > 1:
        yield Said("asks", f"{_numbers(asked)} of one node, all containers together")
    if names := claim_names(pod):
        yield from _claims(facts, names)
    elif not has_gpu:
        resource = next((each.resource for each in facts.plugins), WHOLE)
        yield Said(
            "asks",
            f"for no GPU: no container has {resource} in its resources.limits",
            f"give its container `resources: {{limits: {{{resource}: 1}}}}`{_made_again(pod)}",
        )


def _claims(facts: PodFacts, names: Sequence[str]) -> Iterator[Said]:
    """Yield what a pod's claims ask for, and what became of each; where one is not there, nothing can be scheduled."""
    pod = facts.pod
    namespace = shlex.quote(pod.metadata.namespace)
    if facts.claims is None:
        command = f"`kubectl -n {namespace} describe resourceclaims`"
        called = ", ".join(name or "one that is still to be made" for name in names)
        yield Said("asks", f"by resource claims: {called}", f"{command} says what became of them")
        return
    known = {claim.metadata.name: claim for claim in facts.claims}
    for name in names:
        claim = known.get(name)
        if claim is None:
            what = f"resource claim {name}, which is not there" if name else "a resource claim that is still to be made"
            do = f"`kubectl -n {namespace} get resourceclaims,resourceclaimtemplates`: the pod waits until it is there"
            yield Said("asks", f"by {what}", do)
            continue
        wanted = _numbers(claim.wanted) or "devices of several classes, or all of one"
        yield Said("asks", f"{wanted}, by resource claim {name}")
        if claim.results:
            given = ", ".join(f"{each.device} of {each.pool} ({each.driver})" for each in claim.results)
            yield Said("claim", f"{name} has {given}")
        else:
            quoted = shlex.quote(f"{pod.metadata.namespace}/{name}")
            do = f"`grapnel explain claim {quoted}` says what keeps each device out"
            yield Said("claim", f"{name} has no device yet: it is given some when the scheduler finds a node", do)


def _class(facts: PodFacts, invocation: Invocation) -> Iterator[Said]:
    """Yield whether the pod's RuntimeClass is one that gives containers the driver's files."""
    pod, found, handlers = facts.pod, facts.runtime_class, facts.handlers
    name, wanted = pod.spec.runtime_class_name, next(iter(handlers), _USUAL)
    do = f"give it `runtimeClassName: {wanted}`{_made_again(pod)}"
    if not name:
        text = "none is named: grapnel gives the driver's files to containers of its RuntimeClass alone"
        yield Said("class", text, do)
    elif not facts.is_class_known:
        yield Said("class", name)
    elif found is None:
        apply = invocation.complete("`grapnel apply`", ())
        makes = f"{apply} makes the RuntimeClass {wanted}, where it is declared" if name == wanted else do
        yield Said("class", f"{name}, which this cluster does not have: no node can start its containers", makes)
    elif handlers and found.handler not in handlers:
        declared = " or ".join(handlers)
        yield Said("class", f"{name}, whose handler is {found.handler}, while {declared} is declared", do)
    else:
        yield Said("class", f"{name}, handler {found.handler}")


def _unscheduled(facts: PodFacts, asked: Mapping[str, int], invocation: Invocation) -> Iterator[Said]:
    """Yield the scheduler's words, and what is in the way on each node."""
    pod = facts.pod
    said = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
    if said is None or said.status == "True":
        name = pod.spec.scheduler_name or "default-scheduler"
        yield Said("scheduler", f"none has looked at it yet: it is to be {name}", "`kubectl get pods -n kube-system`")
    else:
        yield Said("scheduler", f"{said.reason}: {said.message}" if said.message else said.reason)
    if not asked or not facts.candidates:
        return
    for name, number in asked.items():
        most = max(each.room(name).has for each in facts.candidates)
        if not most and not any(each.published for each in facts.candidates):
            yield Said("nodes", f"none has {name}", "`grapnel status` shows which nodes have GPUs, and which")
        elif 0 < most < number:
            less = f"ask for at most {most} {name}{_made_again(pod)}; or spread the work over several pods"
            yield Said("nodes", f"none has {number} {name}: the most that one has is {most}", less)
    groups = alike(pod, facts.candidates, asked)
    for names, found in groups[:GROUPS_SHOWN]:
        why = "; ".join(each.why for each in found)
        do = "; ".join(_complete(each, names, invocation) for each in found if each.do)
        yield Said("node", f"{named(names)}: {why or 'nothing that is looked at here is in the way'}", do)
    if rest := sum(len(names) for names, _ in groups[GROUPS_SHOWN:]):
        yield Said("node", f"and {rest} more, for other reasons")
    yield from _holders(facts.candidates, asked)


def _holders(candidates: Sequence[Candidate], asked: Mapping[str, int]) -> Iterator[Said]:
    """Yield that it could not be asked which pods hold devices, and why, where that is so of a node that has any."""
    for each in candidates:
        if any(room.has and room.held is None for room in map(each.room, asked)):
            why = each.status.reported.unasked if each.status is not None and each.status.reported is not None else ""
            yield Said("not known", f"what other pods hold on nodes{f': {why}' if why else ''}")
            return


def _complete(obstacle: Obstacle, names: Sequence[str], invocation: Invocation) -> str:
    return invocation.complete(obstacle.do, names[:1] if obstacle.do.startswith(EXPLAIN) else names)


def _bound(facts: PodFacts, asked: Mapping[str, int], invocation: Invocation) -> Iterator[Said]:
    """Yield what a pod has on its node, or what its kubelet and its containers say of themselves."""
    pod, node = facts.pod, facts.pod.spec.node_name
    here, there = invocation.complete(f"{EXPLAIN} says how that is", [node]), _quoted(pod)
    if pod.status.reason or pod.status.message:
        said = ": ".join(each for each in (pod.status.reason, pod.status.message) if each)
        again = f"`kubectl -n {there.namespace} delete pod {there.name}`: whatever manages it makes another"
        yield Said("kubelet", said, f"{here}; then {again}" if node else again)
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    for each in statuses:
        if words := _container(each):
            at_fault = f"on {node}: `journalctl -t {_HOOK}` has its reason" if _HOOK in words else ""
            yield Said("container", words, at_fault or f"`kubectl -n {there.namespace} describe pod {there.name}`")
    if asked and node and pod.status.phase not in FINISHED:
        which = f"on {node}: `grapnel-node explain {there.namespace}/{there.name}` says which GPUs, and why those"
        is_given = pod.status.phase == "Running"
        yield Said("has" if is_given else "booked", f"{_numbers(asked)} of {node}", which if is_given else here)


@dataclass(frozen=True, slots=True)
class _Quoted:
    namespace: str
    name: str


def _quoted(pod: AskedPod) -> _Quoted:
    return _Quoted(shlex.quote(pod.metadata.namespace), shlex.quote(pod.metadata.name))


def _container(status: ContainerStatus) -> str:
    """Return why a container does not run, empty where it does, has done its work, or only begins."""
    told = []
    waiting, ended, before = status.state.waiting, status.state.terminated, status.last_state.terminated
    if waiting is not None and not (waiting.reason in _BEGINS and not waiting.message):
        told.append(f"waits: {_joined(waiting.reason, waiting.message)}")
    for each, when in ((ended, "ended"), (before, "ended before")):
        if each is not None and each.exit_code:
            told.append(f"{when} with {each.exit_code}: {_joined(each.reason, each.message)}")
    return f"{status.name} {', '.join(told)}" if told else ""


def _joined(reason: str, message: str) -> str:
    return ": ".join(each for each in (reason, message) if each) or "no reason given"


def _made_again(pod: AskedPod) -> str:
    """Return how a change of a pod is made: in what makes it, where something does."""
    owner = pod.metadata.controller
    if owner is None:
        return ", and make it again: a pod's own cannot be changed"
    return f", in the template of what makes it ({owner.kind} {owner.name})"


def _devices(container: Container) -> dict[str, int]:
    return devices_of({**container.resources.requests, **container.resources.limits})


def _gpus_of(devices: Mapping[str, int], plugins: Sequence[Plugin]) -> dict[str, int]:
    found: dict[str, int] = {}
    for plugin in plugins or (None,):
        found |= only_gpus(devices, plugin)
    return found


def _numbers(devices: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(devices.items()))


def named(names: Sequence[str]) -> str:
    """Return names of nodes as people read them."""
    shown = in_series(names)
    return ", ".join(shown) if len(shown) <= _NAMES else f"{', '.join(shown[:_NAMES])} and more ({len(names)} nodes)"


def explain_node(candidate: Candidate, invocation: Invocation = BARE) -> PodReasons:
    """Return what `grapnel status NODE` does not tell of a node: what it may give, who closed it, and its taints."""
    node, status = candidate.node, candidate.status
    plugin = None if status is None else status.plugin
    said, name = [], node.metadata.name
    resources = only_gpus(candidate.devices, plugin)
    for resource in sorted(resources):
        room = candidate.room(resource)
        held = "how many are held is not known" if room.held is None else f"{room.held} held, {room.free} free"
        do = "" if room.free or not room.gives else _FULL.format(quoted=shlex.quote(name))
        size = " if they are of the smallest profile" if room.are_smallest else ""
        said.append(Said("has", f"{room.has} {resource}{size}, {room.gives} can be given, {held}", do))
    if not any(resources.values()):
        do = invocation.complete(_NO_GPU, [name])
        said.append(Said("has", "no GPU: none is registered with its kubelet", do))
    if node.spec.unschedulable:
        added = next((each.time_added for each in node.spec.taints if each.key == UNSCHEDULABLE.key), None)
        since = f", since {added}" if added else ""
        whose = "for its upgrade" if candidate.is_out else "by somebody else than an upgrade that is recorded"
        said.append(Said("cordoned", f"{whose}{since}"))
    for taint in node.spec.taints:
        if not taint.key.startswith("node.kubernetes.io/"):
            written = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            said.append(Said("taint", written))
    todo = dict.fromkeys(each.do for each in said if each.do)
    return PodReasons("", tuple((each.label, each.text) for each in said), tuple(todo))
