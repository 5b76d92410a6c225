"""What `grapnel drift` shows of a fleet."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.apply.model import Failure, Status
from provision.declaration.fleet.facts.node import InstalledPackage
from provision.declaration.fleet.facts.traces import FileTrace, PackageTrace, Traces
from provision.planning.drift import Comparison, group
from provision.planning.node_plan import EDITED, Action, Disruption, Item, NodePlan, Problem, Role
from provision.report.console import make_console
from provision.report.documents.drift import drift_document
from provision.report.drift import render_drift
from provision.report.terminal import show
from tests.provision.samples import make_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTALLED = {"libcuda1": InstalledPackage(version="550.1", source="x")}
APPLY = ("grapnel", "apply")
LOST = Failure(Status.UNREACHABLE, "no route to host")
OLD = Item(
    role=Role.DRIVER, action=Action.UPGRADE, target="libcuda1", from_="550.1", to="550.2", reason="declared is 550.2"
)
DROP_IN = Item(role=Role.RUNTIME, action=Action.WRITE, target="/etc/x", reason="/etc/x is absent")
RESTART = Item(
    role=Role.RUNTIME,
    action=Action.RESTART,
    target="containerd.service",
    reason="it reads /etc/x",
    disruption=Disruption.RESTART_RUNTIME,
)


def plans(count: int, different: Mapping[str, tuple[Item, ...]]) -> dict[str, NodePlan]:
    names = [f"n{number:04}" for number in range(count)]
    return {name: NodePlan(node=name, items=different.get(name, ())) for name in names}


def seen(of_nodes: Mapping[str, NodePlan], traces: Traces | None = None) -> Comparison:
    facts = make_facts(packages=INSTALLED, traces=traces)
    return group(of_nodes, dict.fromkeys(of_nodes, facts))


def shown(of_nodes: Mapping[str, NodePlan], failures: Mapping[str, Failure] | None = None) -> list[str]:
    stream = io.StringIO()
    show(make_console(stream, width=80), render_drift(seen(of_nodes), failures or {}, APPLY))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_a_thousand_equal_nodes_read_like_one() -> None:
    assert shown(plans(1000, {})) == ["1000 nodes: 1000 as declared"]


def test_two_nodes_of_a_thousand_are_named_with_versions_and_the_command_that_mends_them() -> None:
    assert shown(plans(1000, {"n0017": (OLD,), "n0203": (OLD,)})) == [
        "version: declared is 550.2",
        "  2 nodes: n0017, n0203",
        "  libcuda1 is 550.1, declared 550.2",
        "  mend: grapnel apply n0017 n0203",
        "",
        "1000 nodes: 998 as declared, 2 drifted",
    ]


def test_an_edited_file_is_mended_by_force() -> None:
    edit = Item(role=Role.RUNTIME, action=Action.WRITE, target="/etc/x", from_=EDITED, reason="/etc/x was edited")

    assert shown(plans(2, {"n0001": (edit,)})) == [
        "file: /etc/x was edited",
        "  1 node: n0001",
        "  mend: grapnel apply --force n0001",
        "",
        "2 nodes: 1 as declared, 1 drifted",
    ]


def test_a_thousand_nodes_that_drifted_alike_are_mended_together() -> None:
    assert shown(plans(1000, {f"n{number:04}": (OLD,) for number in range(1000)})) == [
        "version: declared is 550.2",
        "  1000 nodes: n0000 to n0999",
        "  libcuda1 is 550.1, declared 550.2",
        "  mend: grapnel apply",
        "",
        "1000 nodes: 1000 drifted",
    ]


def test_what_mending_costs_is_said() -> None:
    assert "  mend: grapnel apply n0000  (restarts the container engine)" in shown(
        plans(1, {"n0000": (DROP_IN, RESTART)})
    )


def test_what_a_reason_is_about_is_said_where_it_does_not_say_so() -> None:
    pin = Item(role=Role.DRIVER, action=Action.WRITE, target="/etc/apt/preferences.d/p", reason="the pin was changed")

    assert "  /etc/apt/preferences.d/p" in shown(plans(1, {"n0000": (pin,)}))


def test_nodes_that_all_differ_in_something_else_do_not_fill_the_screen() -> None:
    different = {
        f"n{number:04}": (Item(role=Role.RUNTIME, action=Action.WRITE, target="f", reason=f"f {number}"),)
        for number in range(500)
    }

    lines = shown(plans(500, different))

    assert "and 460 more differences on 460 nodes: --json has all" in lines
    assert len(lines) < 250


def test_nodes_that_could_not_be_compared_are_told_by_their_reason() -> None:
    bad = {n: NodePlan(node=n, problems=(Problem(code="cursed", message=f"{n} is odd", hint="look"),)) for n in "ab"}

    assert shown(bad, {"c": LOST, "d": LOST}) == [
        "unreachable: c, d",
        "  no route to host",
        "cursed: a, b",
        "  the node is odd",
        "  hint: look",
        "",
        "4 nodes: 4 could not be compared",
    ]


@pytest.mark.parametrize(
    ("node", "message", "expected"),
    [
        pytest.param(
            "n1", "apt on n1 is in use by n17 (n1)", "apt on the node is in use by n17 (the node)", id="a word"
        ),
        pytest.param(
            "a", "a package that n-a has, of a.", "the node package that n-a has, of the node.", id="a letter"
        ),
        pytest.param("n1", "n1.example and n1_x", "n1.example and n1_x", id="the beginning of another name"),
    ],
)
def test_a_node_is_left_out_of_its_problem_as_a_word_alone(node: str, message: str, expected: str) -> None:
    problem = Problem(code="cursed", message=message, hint="")

    assert f"  {expected}" in shown({node: NodePlan(node=node, problems=(problem,))})


def test_nothing_that_a_node_says_reaches_the_terminal_as_it_is() -> None:
    evil = Item(
        role=Role.DRIVER, action=Action.INSTALL, target="a\x1b[2J", from_="1\nx: y", reason="r\x1b[31m\nfile: /"
    )

    lines = shown(plans(1, {"n0000": (evil,)}))

    assert not any("\x1b" in line or line.startswith(("file:", "x:")) for line in lines)


def test_a_command_that_is_pasted_runs_nothing_that_a_name_says() -> None:
    (line,) = [line for line in shown({"$(x)": NodePlan(node="$(x)", items=(OLD,))}) if "mend" in line]

    assert line.endswith("'$(x)'")


def test_the_document_has_every_node_of_every_difference() -> None:
    of_nodes = plans(40, {f"n{number:04}": (OLD,) for number in range(20)})

    document = json.loads(drift_document(seen(of_nodes), {"lost": LOST}, APPLY))

    (difference,) = document["differences"]
    assert len(document["asDeclared"]) == len(document["drifted"]) == len(difference["nodes"]) == 20
    assert difference["mend"] == f"grapnel apply {' '.join(document['drifted'])}"
    assert difference["subjects"] == [{"name": "libcuda1", "found": "550.1", "declared": "550.2"}]
    assert document["unknown"] == [{"node": "lost", "code": "unreachable", "message": "no route to host", "hint": ""}]


APT = PackageTrace(action="upgrade", time=1777615923, version="550.1", command="apt-get upgrade", user="ada (1000)")
WRITTEN = Traces(packages={"libcuda1": APT}, files={"/etc/x": FileTrace(folder=1777615923)})
LINES = {
    OLD: "  since: 2026-05-01 06:12 UTC, changed by `apt-get upgrade` of ada (1000)",
    DROP_IN: "  since: 2026-05-01 06:12 UTC, something was last added to its folder, or",
}


def lines_of(comparison: Comparison) -> list[str]:
    stream = io.StringIO()
    show(make_console(stream, width=80), render_drift(comparison, {}, APPLY))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(("item", "line"), LINES.items(), ids=["a package", "a file"])
def test_who_changed_it_is_said_once_for_all_nodes(item: Item, line: str) -> None:
    lines = lines_of(seen(plans(1000, {f"n{number:04}": (item,) for number in range(1000)}), WRITTEN))

    assert lines.count(line) == 1


def test_nodes_that_were_changed_in_another_way_are_named() -> None:
    of_nodes = plans(3, {f"n{number:04}": (OLD,) for number in range(3)})
    by_hand = Traces(packages={"libcuda1": msgspec.structs.replace(APT, command="", user="", time=1777615983)})
    facts = {node: make_facts(packages=INSTALLED, traces=WRITTEN) for node in of_nodes}
    facts["n0002"] = make_facts(packages=INSTALLED, traces=by_hand)

    lines = lines_of(group(of_nodes, facts))

    assert "  since: 2026-05-01 06:12 UTC, changed by `apt-get upgrade` of ada (1000)" in lines
    assert " ".join(lines).count("(n0000, n0001)") == 1
    assert " ".join(lines).count("(n0002)") == 1


def test_the_document_has_the_origin_of_every_node() -> None:
    document = json.loads(drift_document(seen(plans(2, {"n0000": (OLD,)}), WRITTEN), {}, APPLY))

    assert document["differences"][0]["origins"] == [
        {"node": "n0000", "says": "changed by `apt-get upgrade` of ada (1000)", "time": "2026-05-01T06:12:03Z"}
    ]
