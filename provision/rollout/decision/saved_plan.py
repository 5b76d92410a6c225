"""Saves what a plan came to, and tells how what is planned later differs from it. Pure.

The format is `docs/contracts/saved-plan`. It has no text of a file and no value of the declaration, only what they come
to: nothing is applied from it, it is compared. Not here: what differs from the declaration
(`provision.planning.drift`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from provision.apply.model import Failure
from provision.base import strict_json
from provision.base.decoding import decoder_of
from provision.base.errors import GrapnelError
from provision.base.strict_json import MalformedError
from provision.declaration.spec.text.excerpt import few
from provision.planning.node_plan import Item, NodePlan, Role, role_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.apply.model import Assessment
    from provision.declaration.spec.model import StackSpec
    from provision.rollout.decision.prepare import Prepared

SCHEMA: Final = "grapnel.dev/saved-plan/v1alpha1"
MAX_BYTES: Final = 256 << 20  # 5,000 nodes with 50 changes each have 60 MB
_FAMILY: Final = SCHEMA.rpartition("/")[0]


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options that say what is planned, as they were written; paths begin where the command was run."""

    file: str
    inventory: tuple[str, ...] = ()
    limit: str = ""
    payload: str | None = None
    bundle: str | None = None
    signers: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    no_cluster: bool = False
    force: bool = False


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What is declared for nodes: the digest of each key's value."""

    nodes: tuple[str, ...]
    keys: dict[str, str]


class SavedNode(msgspec.Struct, frozen=True, kw_only=True):
    """What is planned for a node. ``machine`` is the digest of its machine id.

    ``failure`` is why it has no plan. ``problems`` are codes. ``files`` and ``roles`` are digests of what is written,
    by path, and of all that a role is given.
    """

    node: str
    machine: str = ""
    failure: str | None = None
    items: tuple[Item, ...] = ()
    problems: tuple[str, ...] = ()
    files: dict[str, str] = {}
    roles: dict[Role, str] = {}


class SavedCluster(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What becomes of the cluster: the nodes that leave service or cannot, and what is made in it."""

    name: str
    out_of_service: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()
    marks: dict[str, tuple[str, ...]] = {}
    tenancy: tuple[str, ...] = ()


class SavedPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A plan that can be applied as it is, with all that it was computed from."""

    schema: Literal["grapnel.dev/saved-plan/v1alpha1"] = SCHEMA
    grapnel: str
    made_at: str
    made_by: str
    options: Options
    declarations: tuple[Declared, ...]
    nodes: tuple[SavedNode, ...]
    cluster: SavedCluster

    @property
    def declared(self) -> dict[str, Mapping[str, str]]:
        """The digests of what is declared, by node."""
        return {node: each.keys for each in self.declarations for node in each.nodes}


class _Head(msgspec.Struct):
    schema: str = ""
    grapnel: str = ""


def read(data: bytes, name: str, version: str) -> SavedPlan:
    """Return the plan in a file of this name. Raises GrapnelError for none, and for one of another grapnel."""
    again = f"`grapnel plan -o {name}` saves one"
    try:
        head = decoder_of(_Head).decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise GrapnelError(
            f"{name} is no saved plan, or only a part of one: it is no JSON document", hint=again
        ) from error
    if head.schema.rpartition("/")[0] != _FAMILY:
        told = f"its schema is {head.schema}" if head.schema else "it has no schema"
        raise GrapnelError(f"{name} is no saved plan: {told}", hint=f"{again}; that of `--json` is for reading")
    if head.schema != SCHEMA or head.grapnel != version:
        made = f"{head.schema}, by grapnel {head.grapnel or 'unknown'}"
        raise GrapnelError(
            f"{name} is of another version: {made}, and this is {version}", hint=f"{again} of this version"
        )
    try:
        return strict_json.decode(data, SavedPlan, limit_bytes=MAX_BYTES)
    except MalformedError as error:
        raise GrapnelError(f"{name} is no saved plan: {error}", hint=again) from error


def cluster_of(name: str, prepared: Prepared) -> SavedCluster:
    """Return what would become of a cluster of this name."""
    return SavedCluster(
        name=name,
        out_of_service=tuple(sorted(prepared.rollout)),
        refused=tuple(sorted(prepared.refusals)),
        runtime_classes=prepared.runtime_classes,
        marks={node: each.changes for node, each in prepared.marks.items() if each.changes},
        tenancy=prepared.tenancy.changes,
    )


def declarations_of(stacks: Mapping[str, StackSpec]) -> tuple[Declared, ...]:
    """Return what is declared for nodes, those together that are treated alike."""
    alike: dict[int, tuple[StackSpec, list[str]]] = {}
    for node, stack in stacks.items():
        alike.setdefault(id(stack), (stack, []))[1].append(node)
    found: dict[str, Declared] = {}
    for stack, nodes in alike.values():
        keys = {key: _digest(value) for key, value in _leaves(msgspec.to_builtins(stack))}
        known = found.get(same := _digest(keys))
        found[same] = Declared(nodes=(*(known.nodes if known else ()), *nodes), keys=keys)
    return tuple(found.values())


def node_of(node: str, answer: Assessment | Failure) -> SavedNode:
    """Return what is planned for a node."""
    if isinstance(answer, Failure):
        return SavedNode(node=node, failure=answer.status.value)
    plan = answer.plan
    given = {role: _given(plan, role) for role in Role}
    return SavedNode(
        node=node,
        machine=_digest(answer.facts.node.machine_id),
        items=plan.items,
        problems=tuple(each.code for each in plan.problems),
        files={file["path"]: _digest(file) for variables in given.values() for file in variables.get("files", ())},
        roles={role: _digest(variables) for role, variables in given.items() if variables},
    )


def _given(plan: NodePlan, role: Role) -> dict[str, Any]:
    """Return what a role is given, its files under one name; where an archive lies on the controller is left out."""
    given = {name.removeprefix(f"{role.value}_"): value for name, value in role_variables(plan, role).items()}
    return {
        name: PurePath(value).name if name.endswith("archive") and isinstance(value, str) else value
        for name, value in given.items()
    }


def differences(saved: SavedPlan, now: SavedPlan) -> dict[str, tuple[str, ...]]:
    """Return what is different now, a line each with the nodes that it is about; none for what is the cluster's."""
    told: dict[str, list[str]] = {}
    before, after = ({each.node: each for each in plan.nodes} for plan in (saved, now))
    declared, declared_now = saved.declared, now.declared
    for node in dict.fromkeys((*before, *after)):
        if node not in after or node not in before:
            lines = ["it is in the plan, and is not selected now" if node in before else "it is not in the plan"]
        else:
            lines = [
                *_keys(declared.get(node, {}), declared_now.get(node, {})),
                *_of_node(before[node], after[node]),
            ]
        for line in lines:
            told.setdefault(line, []).append(node)
    known = {node for nodes in told.values() for node in nodes}  # what becomes of these follows from it
    for line, nodes in _of_cluster(saved.cluster, now.cluster):
        if not nodes or not known.issuperset(nodes):
            told.setdefault(line, []).extend(node for node in nodes if node not in known)
    return {line: tuple(nodes) for line, nodes in told.items()}


def _keys(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    changed = [key for key in dict.fromkeys((*before, *after)) if before.get(key) != after.get(key)]
    if changed:
        yield f"declared otherwise: {few(changed)}"


def _of_node(before: SavedNode, after: SavedNode) -> Iterator[str]:
    if before.failure != after.failure:
        yield (
            f"it has no plan now ({after.failure})"
            if after.failure
            else f"it has a plan now, and had none ({before.failure})"
        )
        return
    if before.machine != after.machine:
        yield "it is another machine now"
    named = list(_items(before.items, after.items))
    yield from named
    gone = [code for code in before.problems if code not in after.problems]
    came = [code for code in after.problems if code not in before.problems]
    if gone or came:
        yield "; ".join([*(f"problem {code}, new" for code in came), *(f"problem {code}, gone" for code in gone)])
    paths = [path for path in {**before.files, **after.files} if before.files.get(path) != after.files.get(path)]
    if paths:
        yield f"other content for {few(paths)}"
    roles = [role.value for role in Role if before.roles.get(role) != after.roles.get(role)]
    if roles and not named and not paths:
        yield f"other work for {few(roles)}"


def _items(before: tuple[Item, ...], after: tuple[Item, ...]) -> Iterator[str]:
    """Yield how the changes differ; a reason may name a process, and is left out."""
    was, now = ({(each.role, each.action, each.target): _change(each) for each in items} for items in (before, after))
    for key in dict.fromkeys((*was, *now)):
        if was.get(key) == now.get(key):
            continue
        name = f"{key[1].value} {key[2]}"
        if key not in now:
            yield f"no longer: {name}{was[key]}"
        else:
            yield f"{'new' if key not in was else 'now'}: {name}{now[key]}" + (f", was{was[key]}" if key in was else "")


def _change(item: Item) -> str:
    change = f" {item.from_ or 'nothing'} → {item.to or 'nothing'}" if item.from_ or item.to else ""
    return f"{change} ({item.disruption.value}{', once it is staged' if item.deferred else ''})"


def _of_cluster(before: SavedCluster, after: SavedCluster) -> Iterator[tuple[str, tuple[str, ...]]]:
    if before.name != after.name:
        former, present = (each.name or "machines without a cluster" for each in (before, after))
        yield f"planned for {former}, and this is {present}", ()
    for text, was, now in (
        ("taken out of service", before.out_of_service, after.out_of_service),
        ("refused", before.refused, after.refused),
    ):
        for words, nodes in ((f"it would be {text} now", now), (f"it would not be {text} any more", was)):
            if different := tuple(node for node in nodes if (node in was) != (node in now)):
                yield words, different
    for node in {**before.marks, **after.marks}:
        if before.marks.get(node) != after.marks.get(node):
            yield "other changes of labels and taints", (node,)
    if set(before.runtime_classes) != set(after.runtime_classes):
        yield "other RuntimeClasses are missing in the cluster", ()
    if before.tenancy != after.tenancy:
        yield "other changes of quotas, priorities and queues", ()


def _leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
