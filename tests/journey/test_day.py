"""The day of an operator on one node: what is said in it is held against the node, each time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.journey.conftest import OLD_VERSION, VERSION
from tests.journey.test_driver_swap import works_with

if TYPE_CHECKING:
    from lab.nodes import Node
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]  # three changes of a driver, and a removal

NAME = "day"
HOOK = "/etc/grapnel/hook.json"
CONFIG = "/etc/containerd/config.toml"
SERVICES = ("containerd.service", "grapnel-node.service")


def said(controller: Controller, *words: str, code: int = 0) -> str:
    limit = () if words[0] == "rollback" else ("--limit", NAME)
    done = controller.grapnel(*words, *limit, *(() if words[0] == "drift" else ("--no-cluster",)))
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def loaded(node: Node) -> str:
    """Return the driver that runs on a node, empty for none."""
    return node.run(["sh", "-c", "cat /sys/module/nvidia/version 2>/dev/null || true"]).stdout.strip()


def running(node: Node) -> list[str]:
    words = node.run(["systemctl", "is-active", *SERVICES], check=False).stdout.split()
    return [unit for unit, word in zip(SERVICES, words, strict=True) if word == "active"]


def apply(controller: Controller) -> None:
    """Apply what differs: as many changes as the plan has, and none is left."""
    planned = controller.plan_items(NAME, "--no-cluster")
    done = controller.call("apply", "--limit", NAME, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)["nodes"]
    assert result["changes"] == len(planned), f"{done.stdout}\n{planned}"
    assert controller.plan_items(NAME, "--no-cluster") == []


def test_what_is_said_in_a_day_is_so(controller: Controller, node: Node) -> None:
    installs(controller, node)
    breaks_things_by_hand_and_mends_them(controller, node)
    upgrades(controller, node)
    rolls_back(controller, node)
    removes(controller, node)


def installs(controller: Controller, node: Node) -> None:
    controller.declare(OLD_VERSION)
    assert "as the run of" not in said(controller, "status"), "nothing was done yet"

    apply(controller)

    assert works_with(node, OLD_VERSION)
    assert running(node) == list(SERVICES)
    assert f"{OLD_VERSION}, as the run of" in said(controller, "status")
    assert "as declared" in said(controller, "drift")


def breaks_things_by_hand_and_mends_them(controller: Controller, node: Node) -> None:
    node.run(["systemctl", "stop", SERVICES[1]])
    node.run(["chmod", "0600", HOOK])
    node.run(["apt-mark", "unhold", "libcuda1"])

    drift = said(controller, "drift", code=3)
    items = {item["target"]: item["action"] for item in controller.plan_items(NAME, "--no-cluster")}

    assert items == {SERVICES[1]: "start", HOOK: "write", "driver packages": "hold"}
    assert [thing for thing in (SERVICES[1], HOOK, "libcuda1") if thing not in drift] == []
    assert running(node) == [SERVICES[0]], "who looks changes nothing"

    apply(controller)

    assert "as declared" in said(controller, "drift")
    assert running(node) == list(SERVICES)
    assert node.run(["stat", "-c", "%a", HOOK]).stdout.strip() == "644"
    assert "libcuda1" in node.run(["apt-mark", "showhold"]).stdout.split()

    assert "was started before" not in said(controller, "plan"), "apply restarts whatever it writes for"
    node.run(["touch", CONFIG])
    plan = said(controller, "plan")
    remedy = f"systemctl restart {SERVICES[0]}"
    assert f"{SERVICES[0]} was started before {CONFIG} changed" in plan
    assert remedy in plan
    node.run(remedy.split())
    assert "was started before" not in said(controller, "plan")


def upgrades(controller: Controller, node: Node) -> None:
    controller.declare(VERSION)
    node.install_module(VERSION)
    assert loaded(node) == OLD_VERSION

    plan = said(controller, "plan")
    assert (OLD_VERSION in plan, VERSION in plan) == (True, True)
    apply(controller)

    assert works_with(node, VERSION)
    assert VERSION in said(controller, "status", "--node", NAME)
    assert OLD_VERSION not in said(controller, "status")


def rolls_back(controller: Controller, node: Node) -> None:
    node.install_module(OLD_VERSION)  # as the packages of a managed module do
    plan = said(controller, "rollback", NAME, "--plan")
    assert loaded(node) == VERSION, "a plan changes nothing"

    done = controller.call("rollback", NAME)

    assert done.returncode == 0, done.stdout + done.stderr
    result = " ".join(done.stdout.split())
    changes = plan.partition(f"{NAME} ")[2].split()[0]
    assert f"{NAME} returned {changes} {VERSION} → {OLD_VERSION}" in result
    assert loaded(node) == OLD_VERSION
    status = said(controller, "status", code=1)
    assert f"it has driver {OLD_VERSION}, and {VERSION} is declared" in status
    assert f"{OLD_VERSION}, by its record" in status


def removes(controller: Controller, node: Node) -> None:
    done = controller.call("remove", "--limit", NAME)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 removed" in done.stdout
    assert loaded(node) == ""
    assert running(node) == []
    status = json.loads(controller.grapnel("status", "--limit", NAME, "--no-cluster", "--json").stdout)
    assert [one["state"] for one in status["nodes"]] == ["idle"]
    assert OLD_VERSION not in said(controller, "status")
