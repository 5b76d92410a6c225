"""Says what keeps a controller from being uninstalled, and in which words it is refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.base.errors import GrapnelError
from provision.controller.stacks.writer import FINALIZER
from provision.declaration.spec.text.excerpt import few

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from provision.controller.nodes import SeenNode
    from provision.controller.stacks.follower import Followed
    from provision.controller.uninstall.workload import Deployment, Pod

NO_HOOKS: Final = (
    "`grapnel status` shows each node; correct what is named here, and run the same command again. `helm uninstall "
    "--no-hooks` leaves these nodes as they are, out of service: the next installation goes on with them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is seen of a cluster at one moment; ``busy`` are nodes on which Jobs of the controller run."""

    nodes: Mapping[str, SeenNode]
    stacks: Mapping[str, Followed]
    busy: Collection[str] = ()

    @property
    def leaving(self) -> tuple[str, ...]:
        """The stacks that were deleted, and that the controller has to do something about first."""
        return tuple(sorted(name for name, each in self.stacks.items() if each.stack.is_going and is_kept(each)))

    @property
    def failed(self) -> Mapping[str, str]:
        """The nodes that stay out of service when nothing is in flight, and why."""
        return {
            name: node.record.reason
            for name, node in sorted(self.nodes.items())
            if node.record is not None and node.record.phase.is_over and not node.record.phase.is_in_service
        }


def is_kept(followed: Followed) -> bool:
    """Tell whether the controller keeps a stack from going."""
    return FINALIZER in followed.finalizers


def obstacles(sight: Sight) -> Mapping[str, str]:
    """Return what is in the way, by the node or stack that it is about."""
    reasons = {each.node: each.message for one in sight.stacks.values() for each in one.status.troubles}
    return {
        **{f"GpuStack {name}": _goes(sight.stacks[name]) for name in sight.leaving},
        **{
            name: _flies(node, reasons.get(name, "")) for name, node in sorted(sight.nodes.items()) if node.is_in_flight
        },
        **{name: "a Job of the controller runs on it" for name in sight.busy if not _flies_already(name, sight.nodes)},
    }


def _flies_already(name: str, nodes: Mapping[str, SeenNode]) -> bool:
    node = nodes.get(name)
    return node is not None and node.is_in_flight


def _goes(followed: Followed) -> str:
    return f"is being deleted: {followed.status.message}" if followed.status.message else "is being deleted"


def _flies(node: SeenNode, reason: str) -> str:
    record = node.record
    assert record is not None  # it is in flight
    why = record.complaint or reason
    return f"is in {record.phase}{f': {why}' if why else ''}"


def at_work(deployment: Deployment | None, pods: Sequence[Pod]) -> str:
    """Return why no controller is at work, empty where one is."""
    if deployment is None:
        return "there is no Deployment of it"
    if deployment.status.ready_replicas:
        return ""
    name, wanted = deployment.metadata.name, deployment.spec.replicas
    troubles = sorted({each.trouble for each in pods if each.trouble})
    why = f": {'; '.join(troubles)}" if troubles else ""
    return (
        f"Deployment {name} has 0 of {wanted} pods that are ready{why}"
        if wanted
        else f"Deployment {name} is scaled to 0"
    )


def refusal(found: Mapping[str, str], why: str) -> GrapnelError:
    """Return why a controller is not uninstalled, with every node and stack that is in the way."""
    lines = "".join(f"\n  {name} {what}" for name, what in found.items())
    return GrapnelError(f"the controller is not uninstalled: {why}{lines}", hint=NO_HOOKS)


def farewell(sight: Sight) -> Iterator[str]:
    """Yield what an administrator has to know when the controller has ended."""
    if failed := sight.failed:
        yield f"left out of service, since it failed there: {few(list(failed))}; `grapnel status` says what to do"
