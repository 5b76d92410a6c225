"""Who made a difference, as far as the node's own records tell: never more than they do."""

from __future__ import annotations

import pytest

from provision.declaration.fleet.errors import FactsError
from provision.declaration.fleet.facts.node import NodeFacts, parse_facts
from provision.declaration.fleet.facts.traces import FileTrace, PackageTrace, ServiceTrace, Traces
from provision.planning.drift import Origin, differences_of, origins
from provision.planning.engines.containerd.imports import DROP_IN_PATH
from provision.planning.render.hook_config import HOOK_CONFIG_PATH
from tests.provision.samples import (
    as_json,
    configured,
    edit_file,
    edit_file_state,
    edit_package,
    edit_service,
    plan,
    replace,
)

BY_ADA = PackageTrace(action="upgrade", time=100, version="550.1-1", command="apt-get upgrade", user="ada (1000)")
BY_DPKG = PackageTrace(action="install", time=200, version="550.1-1")
CASES: dict[str, tuple[NodeFacts, Traces, list[Origin]]] = {
    "a package that apt changed": (
        edit_package(configured(), "libcuda1", version="550.1-1"),
        Traces(packages={"libcuda1": BY_ADA}),
        [Origin("changed by `apt-get upgrade` of ada (1000)", 100)],
    ),
    "a package that dpkg alone installed": (
        edit_package(configured(), "libcuda1", version="550.1-1"),
        Traces(packages={"libcuda1": BY_DPKG}),
        [Origin("installed by a program that left no name in the package manager's log", 200)],
    ),
    "a package of which the log tells another version": (
        edit_package(configured(), "libcuda1", version="550.2-1"),
        Traces(packages={"libcuda1": BY_ADA}),
        [],
    ),
    "several packages of one transaction": (
        edit_package(edit_package(configured(), "libcuda1", version="550.1-1"), "nvidia-smi", version="550.1-1"),
        Traces(packages={"libcuda1": BY_ADA, "nvidia-smi": replace(BY_ADA, time=101)}),
        [Origin("changed by `apt-get upgrade` of ada (1000)", 101)],
    ),
    "a package that was removed": (
        replace(configured(), packages={n: p for n, p in configured().packages.items() if n != "libcuda1"}),
        Traces(packages={"libcuda1": replace(BY_ADA, action="remove", version="")}),
        [Origin("removed by `apt-get upgrade` of ada (1000)", 100)],
    ),
    "a file that was written": (
        edit_file(configured(), DROP_IN_PATH, "# mine\n"),
        Traces(files={DROP_IN_PATH: FileTrace(written=300, changed=301)}),
        [Origin("written", 300)],
    ),
    "a file whose mode was changed later": (
        edit_file_state(configured(), HOOK_CONFIG_PATH, mode="0666"),
        Traces(files={HOOK_CONFIG_PATH: FileTrace(written=300, changed=400)}),
        [Origin("written", 300), Origin("moved there, or mode or owner changed", 400)],
    ),
    "a file that is gone": (
        edit_file(configured(), DROP_IN_PATH, None),
        Traces(files={DROP_IN_PATH: FileTrace(folder=500)}),
        [Origin("something was last added to its folder, or removed from it", 500)],
    ),
    "a unit that failed": (
        edit_service(configured(), "containerd.service", active="failed"),
        Traces(services={"containerd.service": ServiceTrace(since=600, result="oom-kill")}),
        [Origin("failed (its last run ended with oom-kill)", 600)],
    ),
    "a unit that was disabled, of which nobody wrote down when": (
        edit_service(configured(), "grapnel-node.service", enabled="disabled"),
        Traces(services={"grapnel-node.service": ServiceTrace(since=600)}),
        [],
    ),
    "a hold that was taken off, which apt-mark writes down nowhere": (
        edit_package(configured(), "libcuda1", hold=False),
        Traces(packages={"libcuda1": BY_ADA}),
        [],
    ),
    "a hold in a file": (
        edit_package(configured(), "libcuda1", hold=False),
        Traces(files={"/etc/zypp/locks": FileTrace(written=700), "/etc/dnf/plugins/versionlock.list": FileTrace()}),
        [Origin("/etc/zypp/locks written", 700)],
    ),
}


@pytest.mark.parametrize(("facts", "traces", "expected"), CASES.values(), ids=CASES.keys())
def test_an_origin_is_what_the_records_tell(facts: NodeFacts, traces: Traces, expected: list[Origin]) -> None:
    (difference,) = differences_of(plan(facts))[:1]

    assert list(origins(difference, replace(facts, traces=traces))) == expected
    assert origins(difference, facts) == ()  # nobody asked for them


@pytest.mark.parametrize(
    "traces",
    [
        pytest.param({"packages": {"libcuda1": {"action": "x", "time": -1}}}, id="before all times"),
        pytest.param({"packages": {"libcuda1": {"action": "x", "time": 10**15}}}, id="after all times"),
        pytest.param({"packages": {"libcuda1": {"action": "x y", "time": 1}}}, id="an action of two words"),
        pytest.param({"packages": {f"p{n}": {"action": "x", "time": 1} for n in range(513)}}, id="too many packages"),
        pytest.param({"files": {"etc/x": {}}}, id="a path without its beginning"),
        pytest.param({"services": {"a b": {"since": 1}}}, id="a unit of two words"),
    ],
)
def test_a_node_whose_traces_are_nonsense_is_refused(traces: dict[str, object]) -> None:
    with pytest.raises(FactsError, match="facts of n9"):
        parse_facts(as_json(configured()) | {"traces": traces}, node="n9")


def test_what_a_node_says_of_commands_is_made_printable_and_short() -> None:
    hostile = {"packages": {"libcuda1": {"action": "x", "time": 1, "command": "\x1b[2J" + "y" * 1000, "user": "a\nb"}}}

    traces = parse_facts(as_json(configured()) | {"traces": hostile}).traces

    assert traces is not None
    trace = traces.packages["libcuda1"]
    assert "\x1b" not in trace.command
    assert (len(trace.command) <= 300, trace.user) == (True, "a\\nb")
