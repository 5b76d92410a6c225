"""Merges what the levels say into one declaration per node, and keeps who said what.

Pure. default < declaration file < groups, in Ansible's order < host. Mappings are merged key by key; everything else,
lists too, is replaced as a whole. A key that holds nothing says nothing. Of two alternatives (a version, a branch) the
one that the strongest level declares counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.fleet.model import FleetNode, Level, Origin
from provision.declaration.spec.known_part import known_part
from provision.declaration.spec.model import ALTERNATIVES, StackSpec
from provision.declaration.spec.text.findings import KeyPath, Place, dotted
from provision.declaration.spec.validate import Source, convert, tidy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from provision.declaration.fleet.inventory import Host

BUILT_IN: Final = "built in"


@dataclass(frozen=True)
class Variable:
    """Where values of an inventory variable stand: Ansible tells the group or the host, no line."""

    owner: str

    def key_place(self, _path: KeyPath) -> Place:
        """Return the level, whatever the key."""
        return Place(self.owner)

    value_place = key_place

    def written(self, _path: KeyPath) -> None:
        """Return nothing: Ansible has parsed the text."""


@dataclass(frozen=True)
class Contribution:
    """What one level says, valid by itself; `prefix` is how its keys begin where they were written."""

    level: Level
    content: Mapping[str, object]
    source: Source
    prefix: KeyPath = ()


@dataclass
class Merge:
    """The levels' sum so far: plain values, and the origin of each leaf."""

    content: dict[str, object] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)

    def add(self, contribution: Contribution) -> None:
        """Lay a stronger level over the weaker ones."""
        for one, other in ALTERNATIVES:
            self._take_back(other, one, contribution)
            self._take_back(one, other, contribution)
        self._lay(self.content, contribution.content, contribution, ())

    def _lay(
        self, below: dict[str, object], above: Mapping[str, object], contribution: Contribution, path: KeyPath
    ) -> None:
        for key, value in above.items():
            here = (*path, key)
            if isinstance(value, dict) and value:
                under = below.get(key)
                below[key] = nested = under if isinstance(under, dict) else {}
                self.origins.pop(here, None)
                self._lay(nested, value, contribution, here)
            elif not (isinstance(value, dict) and key in below):
                below[key] = value if not isinstance(value, dict) else {}
                self._remember(here, value, contribution)

    def _take_back(self, key: KeyPath, instead: KeyPath, contribution: Contribution) -> None:
        """Take back what weaker levels say for a key, where this level declares its alternative and not the key."""
        if _find(contribution.content, instead) is None or _find(contribution.content, key) is not None:
            return
        section = _find(self.content, key[:-1])
        if isinstance(section, dict) and section.get(str(key[-1])) is not None:
            section[str(key[-1])] = None
            place = contribution.source.value_place((*contribution.prefix, *instead))
            self.origins[key] = Origin(contribution.level, place, None, self.origins.get(key))

    def _remember(self, path: KeyPath, value: object, contribution: Contribution) -> None:
        place = contribution.source.value_place((*contribution.prefix, *path))
        self.origins[path] = Origin(contribution.level, place, value, self.origins.get(path))


def _find(content: object, path: KeyPath) -> object:
    """Return what stands at a path, None where nothing does."""
    for part in path:
        content = content.get(part) if isinstance(content, dict) else None
    return content


def defaults() -> Contribution:
    """Return the weakest level: what the model says."""
    return Contribution(Level.DEFAULT, msgspec.to_builtins(StackSpec()), Variable(BUILT_IN))


def said(level: Level, content: object, source: Source, prefix: KeyPath) -> Contribution:
    """Return what a level says, without the keys that hold nothing; the content must be valid."""
    tidied = tidy(content)
    return Contribution(level, tidied if isinstance(tidied, dict) else {}, source, prefix)


def merge_node(host: Host, contributions: Sequence[Contribution]) -> FleetNode:
    """Return a node with its effective declaration; the contributions are given weakest first.

    Its keys have the order of the model, also those that only stand below a mapping once somebody says so.
    """
    merge = Merge()
    merge.add(defaults())
    order = {path: index for index, path in enumerate(merge.origins)}
    for each in contributions:
        merge.add(each)
    paths = sorted(merge.origins, key=lambda path: _rank(path, order))
    origins = {dotted(path): merge.origins[path] for path in paths}
    return FleetNode(host.name, host.groups, convert(merge.content, StackSpec), origins, host.endpoint)


def merge_known(
    host: Host, contributions: Sequence[Contribution], wrong: Collection[str], strays: Iterable[str]
) -> FleetNode | None:
    """Return a node with what is known of its declaration, None where that is nothing (`known_part`).

    `wrong` are keys of the spec at which some level has an error: what a stronger one may say there does not count.
    """
    merge = Merge()
    for each in contributions:
        merge.add(each)
    spec = known_part(merge.content, wrong, prefix=(), strays=strays)
    if spec is None:
        return None
    return FleetNode(
        host.name, host.groups, spec, {dotted(path): each for path, each in merge.origins.items()}, host.endpoint
    )


def _rank(path: KeyPath, order: Mapping[KeyPath, int]) -> int:
    """Return the place of a key, or of the mapping around it, among the keys of the model."""
    return next(order[path[:end]] for end in range(len(path), 0, -1) if path[:end] in order)
