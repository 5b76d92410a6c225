"""Holds the nodes' declarations during a command, and the versions that were chosen for declared branches."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from provision.declaration.spec.model import GpuInterface
from provision.planning.driver.wanted import BranchNode, ChosenVersion, follows_branch, group_of, resolve_branches
from provision.planning.planner.drivers.versions import versions_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import Problem


@dataclass(frozen=True)
class Declarations:
    """``stacks`` are the declarations by node, ``reasons`` why a node has the version that stands for its branch.

    ``problems`` are branches that no version could be chosen for.
    """

    stacks: dict[str, StackSpec]
    reasons: dict[str, str] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)
    _settled: dict[bytes, str] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def choose_versions(self, facts: Mapping[str, NodeFacts]) -> None:
        """Give every node that declares a branch the version that its group can have, once for the whole command.

        A node without facts, or with other problems, decides nothing for the others. One that does not know its
        package source yet joins them when it does. May be called on several threads.
        """
        with self._turn:
            nodes = []
            for name, node_facts in facts.items():
                stack = self.stacks.get(name)
                if stack is not None and follows_branch(stack.driver):
                    versions = _versions(node_facts, stack)
                    nodes += [] if versions is None else [BranchNode(name, stack.driver, versions)]
            for name, chosen in resolve_branches(nodes, self._settled).items():
                self._note(name, chosen)

    def adopt(self, name: str, version: str) -> None:
        """Take over what a node was given before: others of its group get the same."""
        stack = self.stacks[name]
        self._settled[group_of(stack.driver)] = version
        self._note(name, ChosenVersion(version, "chosen before"))

    @contextmanager
    def with_interface(self, name: str, interface: GpuInterface | None) -> Iterator[None]:
        """Declare for a while that a node gives GPUs by another interface; None: by the one that is declared.

        Nobody else plans the node meanwhile.
        """
        declared = self.stacks[name].plugin
        if interface is not None:
            makes = declared.dynamic_mig and interface is GpuInterface.DRA  # which the device plugin would refuse
            joins = declared.compute_domains and interface.has_claims
            plugin = msgspec.structs.replace(declared, interface=interface, dynamic_mig=makes, compute_domains=joins)
            self.stacks[name] = msgspec.structs.replace(self.stacks[name], plugin=plugin)
        try:
            yield
        finally:
            self.stacks[name] = msgspec.structs.replace(self.stacks[name], plugin=declared)

    def _note(self, name: str, chosen: ChosenVersion | Problem) -> None:
        if not isinstance(chosen, ChosenVersion):
            self.problems[name] = chosen
            return
        stack = self.stacks[name]
        driver = msgspec.structs.replace(stack.driver, version=chosen.version)
        self.stacks[name] = msgspec.structs.replace(stack, driver=driver)
        self.reasons[name] = chosen.reason
        self.problems.pop(name, None)


def _versions(facts: NodeFacts, stack: StackSpec) -> frozenset[str] | None:
    try:
        return versions_for(facts, stack.driver)
    except Exception:  # noqa: BLE001 - whatever it is about this node's facts, its own plan says it
        return None
