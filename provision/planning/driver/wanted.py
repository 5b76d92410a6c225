"""Chooses the version of a declared branch: the newest that all nodes with the same declaration can have.

Pure. One version for all of them, so that a fleet is not of as many versions as its package sources are old. A node
can thereby hold the others back, on purpose too: the reason says which one does, and from what.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.spec.model import DriverSource
from provision.declaration.spec.text.excerpt import few
from provision.planning.node_plan import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence

    from provision.declaration.spec.model import Driver

_VERSION: Final = re.compile(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{2})?")


@dataclass(frozen=True)
class BranchNode:
    """A node by its name in the inventory, its declaration, and the upstream versions that it can have."""

    name: str
    driver: Driver
    versions: frozenset[str]


@dataclass(frozen=True)
class ChosenVersion:
    """The version that stands for a branch, and why it is this one."""

    version: str
    reason: str


def follows_branch(driver: Driver) -> bool:
    """Tell whether a version has to be chosen for a declaration."""
    declares_it = driver.branch is not None and driver.version is None
    return driver.enabled and declares_it and driver.source is not DriverSource.NONE


def group_of(driver: Driver) -> bytes:
    """Return what nodes have in common that are given one version: the encoded section."""
    return msgspec.json.encode(driver, order="sorted")


def resolve_branches(
    nodes: Iterable[BranchNode], settled: MutableMapping[bytes, str] | None = None
) -> dict[str, ChosenVersion | Problem]:
    """Return what every node that declares a branch should have, by its name.

    Nodes with the same section `driver` form a group. A version that is none of NVIDIA's is passed over: it came
    from a node. ``settled`` are the versions that groups were given earlier; what is chosen now is added.
    """
    settled = {} if settled is None else settled
    groups: dict[bytes, list[BranchNode]] = {}
    for node in nodes:
        if follows_branch(node.driver):
            groups.setdefault(group_of(node.driver), []).append(node)
    resolved: dict[str, ChosenVersion | Problem] = {}
    for key, group in groups.items():
        if key in settled:
            resolved |= {node.name: _join(node, settled[key]) for node in group}
            continue
        chosen = _choose(group)
        resolved |= dict.fromkeys((node.name for node in group), chosen)
        if isinstance(chosen, ChosenVersion):
            settled[key] = chosen.version
    return resolved


def _join(node: BranchNode, version: str) -> ChosenVersion | Problem:
    """Return the version that the node's group was given before anybody knew what this node can have."""
    branch = str(node.driver.branch)
    if version in node.versions:
        return ChosenVersion(version, f"the version of branch {branch} that nodes with the same declaration were given")
    if not _of_branch(node.versions, branch):
        return _not_available([node], branch)
    return Problem(
        code="branch-without-common-version",
        message=f"nodes that declare the same were given {version}, and {node.name} can have "
        f"{_newest(_of_branch(node.versions, branch))} of driver branch {branch}",
        hint="give the nodes the same package sources, or declare driver.version for those that differ",
    )


def _choose(group: Sequence[BranchNode]) -> ChosenVersion | Problem:
    branch = str(group[0].driver.branch)
    having = {node.name: _of_branch(node.versions, branch) for node in group}
    common = frozenset.intersection(*having.values())
    if not common:
        return _nothing_in_common(group, branch, having)
    version, newest = _newest(common), _newest(frozenset.union(*having.values()))
    reason = f"the newest version of branch {branch}"
    if len(group) > 1:
        reason += f" that all {len(group)} nodes with the same declaration can have"
    if version != newest:
        behind = [name for name, versions in having.items() if newest not in versions]
        reason += f"; {newest} is not available to {few(behind)}"
    return ChosenVersion(version, reason)


def _nothing_in_common(group: Sequence[BranchNode], branch: str, having: Mapping[str, frozenset[str]]) -> Problem:
    without = [node for node in group if not having[node.name]]
    if without:
        return _not_available(without, branch)
    return Problem(
        code="branch-without-common-version",
        message=f"no version of driver branch {branch} is available to every node that declares the same; "
        f"the newest for each: {_newest_of_each(having)}",
        hint="give the nodes the same package sources, or declare driver.version for those that differ",
    )


def _not_available(without: Sequence[BranchNode], branch: str) -> Problem:
    others = sorted({_branch(version) for node in without for version in _known(node.versions)})
    instead = f"another branch ({', '.join(others)})" if others else "another branch"
    return Problem(
        code="branch-not-available",
        message=f"no version of driver branch {branch} is available to {few([node.name for node in without])}",
        hint=f"give them a package source that has the branch, or declare {instead} for them: "
        "one version is chosen for all nodes that declare the same",
    )


def _newest_of_each(having: Mapping[str, frozenset[str]]) -> str:
    """Return who could have what, newest first."""
    alike: dict[str, list[str]] = {}
    for name, versions in having.items():
        alike.setdefault(_newest(versions), []).append(name)
    return "; ".join(f"{version} ({few(alike[version])})" for version in sorted(alike, key=_parts, reverse=True))


def _of_branch(versions: Collection[str], branch: str) -> frozenset[str]:
    return frozenset(each for each in _known(versions) if _branch(each) == branch)


def _known(versions: Iterable[str]) -> list[str]:
    return [each for each in versions if _VERSION.fullmatch(each)]


def _branch(version: str) -> str:
    return version.partition(".")[0]


def _newest(versions: Collection[str]) -> str:
    return max(versions, key=_parts)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
