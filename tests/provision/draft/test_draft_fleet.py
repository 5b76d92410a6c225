"""Equal nodes are one group, the files say where each value is from, and loaded again they are what was drafted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.declaration.fleet.facts.node import DeviceHolder, NodeFacts
from provision.declaration.fleet.load import load
from provision.planning.draft.fleet import FleetDraft, draft_fleet
from provision.planning.draft.text import render_declaration, render_groups
from provision.planning.planner.plan import plan_node
from tests.provision.draft.test_draft_node import FOREIGN, MANAGED
from tests.provision.samples import PAYLOAD, configured, make_facts, make_stack, replace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import NodePlan

NODES: dict[str, NodeFacts] = {
    **{f"n{number}": configured(make_stack()) for number in (1, 2, 10)},
    **{f"d{number}": FOREIGN["Docker with NVIDIA's runtime"][0] for number in (1, 2)},
    "loose": configured(make_stack(driver={"hold": False})),
    "tenants": configured(make_stack(**{name: dict(each) for name, each in MANAGED["tenants"].items()})),
    "graphics": configured(make_stack(**{name: dict(each) for name, each in MANAGED["graphics"].items()})),
    "bare": make_facts(),
}


def plan(facts: NodeFacts, stack: StackSpec) -> NodePlan:
    return plan_node(facts, stack, PAYLOAD)


def drafted(facts: Mapping[str, NodeFacts] = NODES) -> FleetDraft:
    return draft_fleet(facts, plan)


def test_equal_nodes_are_one_group_the_largest_first() -> None:
    assert [group.nodes for group in drafted().groups] == [
        ("n1", "n2", "n10"), ("d1", "d2"), ("loose",), ("tenants",), ("graphics",), ("bare",)
    ]  # fmt: skip


def test_who_a_node_is_and_what_runs_on_it_makes_no_group() -> None:
    node, newer = NODES["n1"], ("/etc/containerd/config.toml",)
    other = replace(
        node,
        node=replace(node.node, hostname="n7", machine_id="a" * 32, boot_id="b"),
        device_holders=(DeviceHolder(pid=7, command="python"),),
        services={unit: each and replace(each, newer_files=newer) for unit, each in node.services.items()},
    )
    calls: list[str] = []

    def counted(facts: NodeFacts, stack: StackSpec) -> NodePlan:
        calls.append(facts.node.hostname)
        return plan(facts, stack)

    draft = draft_fleet({"n1": node, "n7": other}, counted)
    assert len(draft.groups) == 1
    assert set(calls) == {node.node.hostname}


def test_what_is_written_is_what_was_drafted(tmp_path: Path) -> None:
    draft = drafted()
    file, groups, inventory = (tmp_path / name for name in ("grapnel.yaml", "grapnel-groups.yaml", "hosts"))
    text = render_groups(draft, file.name)
    assert text is not None
    file.write_text(render_declaration(draft))
    groups.write_text(text)
    inventory.write_text("\n".join(NODES) + "\n")

    fleet = load(file, (str(inventory), str(groups)), limit="", directory=tmp_path, environ={"PATH": "/usr/bin"})

    for node in fleet.nodes:
        assert plan(NODES[node.name], node.stack) == draft.nodes[node.name].plan


def test_what_nodes_have_whose_section_is_on_stands_above_the_groups() -> None:
    draft = drafted({name: NODES[name] for name in ("n1", "n2", "bare")})

    assert 'version: "550.163.01"' in render_declaration(draft)
    (group,) = (each for each in draft.groups if each.own)
    assert [".".join(each.path) for each in group.own] == ["driver.enabled", "runtime.enabled", "plugin.enabled"]


def test_a_fleet_of_equal_nodes_has_one_file() -> None:
    assert render_groups(drafted({name: NODES[name] for name in ("n1", "n2")}), "grapnel.yaml") is None


def test_files_are_the_same_each_time_and_say_where_values_are_from() -> None:
    first, again = drafted(), drafted()

    assert render_declaration(first) == render_declaration(again)
    assert render_groups(first, "x") == render_groups(again, "x")
    alone = render_declaration(drafted({"n1": NODES["n1"]}))
    assert '    # most of the driver\'s packages\n    version: "550.163.01"\n' in alone


@pytest.mark.parametrize("name", ["n1", "d1", "bare"])
def test_a_declaration_of_one_node_is_valid(name: str, tmp_path: Path) -> None:
    file = tmp_path / "grapnel.yaml"
    file.write_text(render_declaration(drafted({name: NODES[name]})))

    fleet = load(file, (f"{name},",), limit="", directory=tmp_path, environ={"PATH": "/usr/bin"})
    assert plan(NODES[name], fleet.nodes[0].stack).is_empty


def test_nothing_takes_nothing_back() -> None:
    plain = configured(make_stack())
    small = configured(make_stack(plugin={"metricsAddress": "0.0.0.0:9400"}))
    draft = draft_fleet({"a": small, "b": small, "c": plain}, plan)

    for name, facts in (("a", small), ("b", small), ("c", plain)):
        assert plan(facts, draft.nodes[name].stack).is_empty
    assert msgspec.to_builtins(draft.nodes["a"].stack.plugin)["metricsAddress"] == "0.0.0.0:9400"
