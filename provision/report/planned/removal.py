"""Renders what `grapnel remove` or `rollback` comes to, nodes with the same steps together; and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from provision.apply.model import Failure
from provision.apply.removal import Part, RemovalStep
from provision.base.printable import printable_json
from provision.report.console import Text
from provision.report.terminal import count, hanging, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from provision.apply.removal import NodeRemoval
    from provision.rollout.changes.cluster_removal import ClusterRemoval

    Removals = Mapping[str, NodeRemoval | Failure]

SCHEMA: Final = "grapnel.dev/removal-plan/v1alpha1"
_ACTION_WIDTH = 9


def render_removals(removals: Removals, left: str = "") -> Iterator[RenderableType]:
    """Yield a block for each group of nodes on which the same is done; ``left`` is what stays in their cluster."""
    groups: dict[NodeRemoval, list[str]] = {}
    for node, found in removals.items():
        if not isinstance(found, Failure):
            groups.setdefault(found, []).append(node)
    for found, nodes in groups.items():
        if found.steps or found.notes or found.problems:
            yield from _render(found, nodes)
    if left:
        yield hanging(Text("not as before: ", "bold yellow"), Text(left))


def _render(found: NodeRemoval, nodes: list[str]) -> Iterator[RenderableType]:
    yield Text.assemble((names(nodes), "bold cyan"), f"  {count(len(found.steps), 'change')}")
    for step in found.steps:
        yield hanging(Text(f"  {step.action:<{_ACTION_WIDTH}}"), Text(f"{step.target}  ({step.reason})"))
    for note in found.notes:
        yield hanging(Text("  not as before: ", "bold yellow"), Text(note))
    for problem in found.problems:
        yield hanging(Text("  refused: ", "bold red"), Text(problem))


def render_cluster_removal(found: ClusterRemoval, cluster: str) -> Iterator[RenderableType]:
    """Yield what is taken back in a cluster, Nodes with the same marks together, and what stays there."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, change in found.marks.items():
        if change.changes:
            groups.setdefault(change.changes, []).append(node)
    if found:
        yield Text.assemble((cluster, "bold cyan"))
    for changes, nodes in groups.items():
        off = ", ".join(change.removeprefix("no ") for change in changes)
        yield hanging(Text(f"  {'take off':<{_ACTION_WIDTH}}"), Text(f"{off}  (Node {names(nodes)})"))
    for name in found.classes:
        yield hanging(Text(f"  {'delete':<{_ACTION_WIDTH}}"), Text(f"RuntimeClass {name}  (grapnel made it)"))
    for line in found.stays:
        yield hanging(Text("  not as before: ", "bold yellow"), Text(line))


class RemovalOfNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node: what is done, what cannot be given back, and why nothing may be begun."""

    node: str
    failure: str | None
    steps: tuple[RemovalStep, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]


class RemovalOfCluster(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is taken back in the cluster: marks by node, RuntimeClasses; and what stays there."""

    marks: Mapping[str, tuple[str, ...]]
    runtime_classes: tuple[str, ...]
    stays: tuple[str, ...]


class RemovalDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `remove` and `rollback` print with `--plan --json` (docs/contracts/removal)."""

    schema: Literal["grapnel.dev/removal-plan/v1alpha1"]
    parts: tuple[Part, ...]
    rollout: Mapping[str, Any]
    nodes: tuple[RemovalOfNode, ...]
    cluster: RemovalOfCluster


def removals_document(
    removals: Removals, parts: Iterable[Part], rollout: Mapping[str, object], cluster: ClusterRemoval
) -> str:
    """Return the same as JSON, with the order in which nodes go and what has to leave them."""
    taken = RemovalOfCluster(
        marks={node: change.changes for node, change in cluster.marks.items() if change.changes},
        runtime_classes=cluster.classes,
        stays=cluster.stays,
    )
    of_nodes = tuple(_document(node, found) for node, found in removals.items())
    document = RemovalDocument(
        schema=SCHEMA, parts=tuple(sorted(parts)), rollout=rollout, nodes=of_nodes, cluster=taken
    )
    return printable_json(msgspec.to_builtins(document))


def _document(node: str, found: NodeRemoval | Failure) -> RemovalOfNode:
    if isinstance(found, Failure):
        return RemovalOfNode(node=node, failure=found.message, steps=(), notes=(), problems=())
    return RemovalOfNode(node=node, failure=None, steps=found.steps, notes=found.notes, problems=found.problems)
