"""What somebody else changed on a configured node is seen, said in words, and put right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.driver import DriverRun
from provision.declaration.fleet.facts.node import (
    Installation,
)
from provision.planning.driver.packages.pins.apt import PIN_PATH
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.containerd.imports import DROP_IN_PATH, MAIN_PATH
from provision.planning.node_plan import Disruption
from provision.planning.planner.node_daemon import UNIT_PATH
from provision.planning.render.hook_config import HOOK_CONFIG_PATH
from tests.provision.samples import (
    DEBIAN_CONFIG,
    PAYLOAD,
    configured,
    edit_file,
    edit_file_state,
    edit_package,
    edit_package_manager,
    edit_service,
    plan,
    replace,
    simulate_apply,
    steps,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.declaration.fleet.facts.node import NodeFacts

    Change = Callable[[NodeFacts], NodeFacts]

CUT_SHORT = DriverRun(state="running", verb="swap", change="0123456789ab", step="unload")

DRIFT: dict[str, tuple[Change, list[tuple[str, str]], str, Disruption]] = {
    "a hold that was taken off": (
        lambda facts: edit_package(facts, "libcuda1", hold=False),
        [("hold", "driver packages")],
        "libcuda1: not held: any system upgrade would change them",
        Disruption.NONE,
    ),
    "a pin that was edited": (
        lambda facts: edit_file(facts, PIN_PATH, text_of(facts, PIN_PATH) + "Explanation: mine\n"),
        [("write", PIN_PATH)],
        "the pin was changed: it differs from what is declared",
        Disruption.NONE,
    ),
    "a pin that was removed": (
        lambda facts: edit_file(facts, PIN_PATH, None),
        [("write", PIN_PATH)],
        "nothing pins the driver to 550.163.01-2",
        Disruption.NONE,
    ),
    "a pin for another driver": (
        lambda facts: edit_file(facts, PIN_PATH, "Package: src:nvidia-graphics-drivers\nPin: version 1\n"),
        [("write", PIN_PATH)],
        "the pin is for another driver version",
        Disruption.NONE,
    ),
    "a package that is half configured": (
        lambda facts: edit_package(facts, "libcuda1", status="half-configured"),
        [("install", "libcuda1")],
        "libcuda1 is half-configured",
        Disruption.NONE,
    ),
    "a swap to another driver that was cut short": (
        lambda facts: replace(facts, driver=replace(facts.driver, run=CUT_SHORT)),
        [("repair", "driver 550.163.01")],
        "an earlier swap, to another change, was interrupted in its step unload",
        Disruption.DRAIN,
    ),
    "an interrupted dpkg": (
        lambda facts: edit_package_manager(facts, interrupted=True),
        [("repair", "dpkg")],
        "dpkg was interrupted and has to finish before anything else is installed",
        Disruption.NONE,
    ),
    "a daemon that was disabled": (
        lambda facts: edit_service(facts, "grapnel-node.service", enabled="disabled"),
        [("enable", "grapnel-node.service")],
        "grapnel-node.service is not enabled: it would not start at boot",
        Disruption.NONE,
    ),
    "a daemon that failed": (
        lambda facts: edit_service(facts, "grapnel-node.service", active="failed"),
        [("start", "grapnel-node.service")],
        "grapnel-node.service is failed",
        Disruption.NONE,
    ),
    "an engine that is down": (
        lambda facts: edit_service(facts, "containerd.service", active="inactive"),
        [("start", "containerd.service")],
        "containerd.service is inactive",
        Disruption.NONE,
    ),
    "a comment in our drop-in": (
        lambda facts: edit_file(facts, DROP_IN_PATH, f"# hello\n{text_of(facts, DROP_IN_PATH)}"),
        [("write", DROP_IN_PATH)],
        f"{DROP_IN_PATH} differs from what is declared",
        Disruption.NONE,
    ),
    "our drop-in removed": (
        lambda facts: edit_file(facts, DROP_IN_PATH, None),
        [("write", DROP_IN_PATH), ("restart", "containerd.service")],
        f"{DROP_IN_PATH} is absent",
        Disruption.RESTART_RUNTIME,
    ),
    "an administrator's change in the main file": (
        lambda facts: edit_file(facts, MAIN_PATH, text_of(facts, MAIN_PATH).replace("/usr/lib/cni", "/opt/cni/bin")),
        [("write", DROP_IN_PATH), ("restart", "containerd.service")],
        f"{DROP_IN_PATH} differs from what is declared",
        Disruption.RESTART_RUNTIME,
    ),
    "the import taken out of the main file": (
        lambda facts: edit_file(facts, MAIN_PATH, DEBIAN_CONFIG),
        [("write", MAIN_PATH), ("restart", "containerd.service")],
        f"{MAIN_PATH} differs from what is declared",
        Disruption.RESTART_RUNTIME,
    ),
    "a base specification without the hook": (
        lambda facts: edit_file(facts, BASE_SPEC_PATH, "{}\n"),
        [("write", BASE_SPEC_PATH), ("restart", "containerd.service")],
        f"{BASE_SPEC_PATH} differs from what is declared",
        Disruption.RESTART_RUNTIME,
    ),
    "a hook configuration that others can write": (
        lambda facts: edit_file_state(facts, HOOK_CONFIG_PATH, mode="0666"),
        [("write", HOOK_CONFIG_PATH)],
        f"{HOOK_CONFIG_PATH} has mode 0666, not 0644",
        Disruption.NONE,
    ),
    "a hook configuration of another user": (
        lambda facts: edit_file_state(facts, HOOK_CONFIG_PATH, uid=1000),
        [("write", HOOK_CONFIG_PATH)],
        f"{HOOK_CONFIG_PATH} belongs to 1000:0, not to root",
        Disruption.NONE,
    ),
    "another version of the hook": (
        lambda facts: replace(facts, installed=facts.installed | {"hook": Installation(digest="0")}),
        [("deploy", "hook")],
        "another version of grapnel's hook is installed",
        Disruption.NONE,
    ),
    "another version of the daemon": (
        lambda facts: replace(facts, installed=facts.installed | {"node": Installation(digest="0")}),
        [("deploy", "node"), ("restart", "grapnel-node.service")],
        "another version of grapnel's node daemon is installed",
        Disruption.NONE,
    ),
    "a daemon that is started with another Python": (
        lambda facts: replace(
            facts,
            installed=facts.installed
            | {"node": Installation(digest=PAYLOAD.node.digest, python="/usr/bin/python3.11")},
        ),
        [("deploy", "node"), ("restart", "grapnel-node.service")],
        "grapnel's node daemon is started with another Python",
        Disruption.NONE,
    ),
    "a unit that was edited": (
        lambda facts: edit_file(facts, UNIT_PATH, "[Service]\n"),
        [("write", UNIT_PATH), ("restart", "grapnel-node.service")],
        f"{UNIT_PATH} differs from what is declared",
        Disruption.NONE,
    ),
    "an engine restart that was cut off": (
        lambda facts: edit_file(facts, "/run/grapnel/restart/containerd.service", ""),
        [("restart", "containerd.service")],
        "an earlier apply changed its configuration and was interrupted before the restart",
        Disruption.RESTART_RUNTIME,
    ),
    "a daemon restart that was cut off": (
        lambda facts: edit_file(facts, "/run/grapnel/restart/grapnel-node.service", ""),
        [("restart", "grapnel-node.service")],
        "an earlier apply changed what the daemon reads and was interrupted before the restart",
        Disruption.NONE,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("change", "expected", "reason", "disruption"), DRIFT.values(), ids=DRIFT.keys())
def test_drift_is_put_right(
    change: Change, expected: list[tuple[str, str]], reason: str, disruption: Disruption
) -> None:
    facts = change(configured())

    result = plan(facts)

    assert steps(result.items) == expected
    assert result.items[0].reason == reason
    assert result.disruption is disruption
    assert plan(simulate_apply(facts, result)).is_empty


def test_one_package_that_was_removed_is_missing_and_not_the_driver() -> None:
    facts = configured()
    left = {name: each for name, each in facts.packages.items() if name != "nvidia-smi"}

    first = plan(replace(facts, packages=left)).items[0]

    assert (first.target, first.reason) == ("nvidia-smi", "nvidia-smi of driver 550.163.01 is missing")
