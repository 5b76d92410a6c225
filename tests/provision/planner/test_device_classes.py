"""Declared device classes come onto the node and go again; what people put there themselves stays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from provision.declaration.spec.beside import Beside
from provision.declaration.spec.model import StackSpec
from provision.planning.node_plan import Action
from tests.provision.samples import configured, edit_file, make_stack, plan, simulate_apply, steps, text_of

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

FOLDER = "/etc/grapnel/devices.d"
LIST = "/etc/grapnel/declared-devices.json"
RELOAD = ("reload", "grapnel-node.service")


def declared(*names: str) -> StackSpec:
    completed, remarks = Beside(Path()).complete(make_stack(plugin={"deviceClasses": list(names)}))
    assert remarks == []
    return completed


def after(facts: NodeFacts, stack: StackSpec) -> NodeFacts:
    done = simulate_apply(facts, plan(facts, stack))
    assert plan(done, stack).is_empty
    return done


def test_declared_classes_are_written_and_the_daemon_reloaded() -> None:
    stack = declared("rdma-shared", "fuse")

    result = plan(configured(), stack)

    assert steps(result.items) == [
        ("write", f"{FOLDER}/rdma-shared.json"),
        ("write", f"{FOLDER}/fuse.json"),
        ("write", LIST),
        RELOAD,
    ]
    written = text_of(after(configured(), stack), f"{FOLDER}/fuse.json")
    assert written == (Path(__file__).parents[3] / "deploy/devices/fuse.json").read_text()


def test_a_class_that_is_declared_no_more_is_taken_away_and_no_other() -> None:
    facts = after(configured(), declared("rdma-shared", "fuse"))
    facts = edit_file(facts, f"{FOLDER}/own.json", "{}")

    result = plan(facts, declared("fuse"))

    assert steps(result.items) == [("remove", f"{FOLDER}/rdma-shared.json"), ("write", LIST), RELOAD]
    assert result.roles.node_daemon is not None
    assert result.roles.node_daemon.node_daemon_absent == (f"{FOLDER}/rdma-shared.json",)
    left = after(facts, declared("fuse"))
    assert left.file(f"{FOLDER}/rdma-shared.json") is None
    assert left.file(f"{FOLDER}/own.json") is not None


def test_without_any_class_the_list_says_so_and_nothing_is_planned_any_more() -> None:
    facts = after(configured(), declared("fuse"))

    assert ("remove", f"{FOLDER}/fuse.json") in steps(plan(facts, make_stack()).items)
    assert after(facts, make_stack()).file(f"{FOLDER}/fuse.json") is None


def test_files_of_people_are_left_alone_where_no_class_is_declared() -> None:
    facts = edit_file(configured(), f"{FOLDER}/own.json", "{}")

    assert plan(facts, make_stack()).is_empty


def test_a_class_that_somebody_has_changed_is_put_right() -> None:
    stack = declared("fuse")
    facts = edit_file(after(configured(), stack), f"{FOLDER}/fuse.json", "{}")

    assert steps(plan(facts, stack).items) == [("write", f"{FOLDER}/fuse.json"), RELOAD]


def test_a_list_that_a_node_has_made_up_takes_nothing_else_away() -> None:
    facts = edit_file(configured(), LIST, '{"declared": ["../../passwd", "own", 7]}')
    facts = edit_file(facts, "/etc/passwd", "x")

    removed = [item.target for item in plan(facts, make_stack()).items if item.action is Action.REMOVE]

    assert removed == []


def test_a_declaration_that_was_completed_travels_as_it_is() -> None:
    stack = declared("fuse")

    assert msgspec.convert(msgspec.to_builtins(stack), StackSpec) == stack
