"""A fleet from recorded facts: nodes that differ in name and machine, as equal ones do, or in what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from provision.apply.model import Assessment
from provision.declaration.fleet.facts.node import parse_facts
from provision.declaration.spec.model import Driver, KernelModule, StackSpec
from provision.planning.planner.plan import plan_node
from provision.planning.supply.payload.model import Artifact, Payload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.planning.node_plan import NodePlan

SAMPLE: Final = Path(__file__).parents[2] / "docs/contracts/node-facts/good/configured-trixie.json"
PAYLOAD: Final = Payload(
    hook=Artifact("/payload/hook.tar", "0" * 64),
    driver=Artifact("/payload/driver.tar", "2" * 64),
    node=Artifact("/payload/node.tar", "1" * 64),
    unit="[Service]\n",
)
STACK: Final = StackSpec(driver=Driver(version="550.163.01", kernel_module=KernelModule.NONE))
ENGINE_LESS: Final = msgspec.structs.replace(STACK, runtime=msgspec.structs.replace(STACK.runtime, install=False))


def recorded(nodes: int) -> Iterator[tuple[str, bytes]]:
    """Yield name and recorded facts of each node: a configured one of the lab, under names of their own."""
    sample = SAMPLE.read_bytes()
    for number in range(nodes):
        name = f"gpu{number:05}"
        renamed = sample.replace(b'"hostname": "n1"', f'"hostname": "{name}"'.encode())
        yield name, renamed.replace(b"0f5e4c8dc9d54f0b8e6f7f9a3f1f4b11", f"{number:032x}".encode())


def assessed(nodes: int) -> dict[str, Assessment]:
    """Return facts and plan of each node, as `grapnel plan` holds them."""
    answers = {}
    for name, text in recorded(nodes):
        facts = parse_facts(text, node=name)
        answers[name] = Assessment(facts=facts, plan=plan_node(facts, STACK, PAYLOAD, name=name))
    return answers


def without_engine(nodes: int) -> dict[str, Assessment]:
    """Return nodes with the same problem, which names each of them."""
    answers = {}
    for name, text in recorded(nodes):
        facts = parse_facts(text, node=name)
        bare = msgspec.structs.replace(facts, engines={})
        answers[name] = Assessment(facts=bare, plan=plan_node(bare, ENGINE_LESS, PAYLOAD, name=name))
    return answers


def different(nodes: int) -> dict[str, Assessment]:
    """Return nodes of which no two have the same plan."""
    return {
        name: Assessment(facts=answer.facts, plan=_with_another_first(answer.plan, number))
        for number, (name, answer) in enumerate(assessed(nodes).items())
    }


def _with_another_first(plan: NodePlan, number: int) -> NodePlan:
    first = msgspec.structs.replace(plan.items[0], reason=f"the hook of release {number} is deployed")
    return msgspec.structs.replace(plan, items=(first, *plan.items[1:]))
