"""Judges the waves of a rollout against the fleet: all nodes declare the same, and what a wave selects exists. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.spec.excerpt import few
from provision.spec.remark import error
from provision.spec.rollout_rules import WAVES
from provision.spec.validate import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from provision.fleet.model import FleetNode
    from provision.spec.model import StackSpec
    from provision.spec.remark import Remark


def judge_shared(node: FleetNode, first: FleetNode) -> Iterator[Remark]:
    """Yield that a node declares other waves than the ``first`` of the fleet, or treats pods in another way."""
    if node.stack.rollout.waves != first.stack.rollout.waves:
        message = f"other waves are declared for {first.name}: a rollout has the same waves for all nodes"
        yield error(WAVES, message, "declare them once, in the file or for the group all")
    if node.stack.rollout.domains != first.stack.rollout.domains:
        message = f"other domains are declared for {first.name}: a rollout has the same domains for all nodes"
        yield error(("rollout", "domains"), message, "declare them once, in the file or for the group all")

    for key, mine, theirs in (
        ("waitFor", node.stack.rollout.wait_for, first.stack.rollout.wait_for),
        ("drain", node.stack.rollout.drain, first.stack.rollout.drain),
    ):
        if mine != theirs:
            message = (
                f"other pods are declared for {first.name}: a rollout treats the pods of all nodes in the same way"
            )
            yield error(("rollout", key), message, "declare it once, in the file or for the group all")


def judge_selected(stack: StackSpec, hosts: Collection[str], groups: Collection[str]) -> Iterator[Remark]:
    """Yield what waves select and the whole inventory, which has these ``hosts`` and ``groups``, does not have."""
    for index, wave in enumerate(stack.rollout.waves):
        for kind, wanted, known in (("host", wave.hosts, hosts), ("group", wave.groups, groups)):
            for place, name in enumerate(wanted):
                if name not in known:
                    near = nearest(name, sorted(known))
                    hint = f"did you mean {near}?" if near else f"{kind}s: {few(sorted(known))}"
                    message = f"no {kind} of the inventory is named '{name}'"
                    yield error((*WAVES, index, f"{kind}s", place), message, hint)
