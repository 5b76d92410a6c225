"""Back to the driver before with `grapnel rollback`, and away with `grapnel remove --driver`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.journey.conftest import OLD_VERSION, ROOT, VERSION
from tests.journey.foreseen import look, not_done, not_shown, steps_of
from tests.journey.test_driver_swap import is_there, works_with

if TYPE_CHECKING:
    from lab.nodes import Node
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]  # four changes of a driver with real packages

NAME = "back"
PROGRAM = "/usr/lib/grapnel/driver"
HOME = "/var/lib/grapnel/driver"
NOTES = "/var/lib/grapnel/"  # of what was done, by grapnel-driver and the node daemon
PIN = "/etc/apt/preferences.d/00-grapnel-nvidia"
PLAYBOOK = ROOT / "playbooks" / "driver.yml"


def apply(controller: Controller, node: Node, version: str) -> None:
    controller.declare(version)
    node.install_module(version)
    done = controller.call("apply", NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    assert works_with(node, version)


def driver_packages(node: Node) -> list[str]:
    said = node.run(["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}${Package}\\n"]).stdout
    return [line for line in said.splitlines() if "nvidia" in line or "libcuda" in line]


def test_a_rollback_returns_to_the_driver_before_and_a_removal_leaves_none(controller: Controller, node: Node) -> None:
    before = driver_packages(node)
    apply(controller, node, OLD_VERSION)
    apply(controller, node, VERSION)
    node.install_module(OLD_VERSION)  # as the packages of a managed module do
    undone = current_change(node)

    foreseen = controller.grapnel("rollback", NAME, "--no-cluster", "--plan", "--json")
    assert foreseen.returncode == 0, foreseen.stdout + foreseen.stderr
    steps = steps_of(foreseen.stdout, NAME)
    assert works_with(node, VERSION), "a plan changes nothing"
    untouched = look(node, steps)

    returned = controller.call("rollback", NAME)

    said = " ".join(returned.stdout.split())
    assert returned.returncode == 0, returned.stdout + returned.stderr
    assert f"{NAME} returned {len(steps)} {VERSION} → {OLD_VERSION}" in said
    assert f"the declaration still names driver {VERSION} for {NAME}" in said
    assert works_with(node, OLD_VERSION)
    told = controller.grapnel("status", NAME, "--no-cluster")
    assert told.returncode == 1, told.stdout + told.stderr
    status = " ".join(told.stdout.split())
    assert f"it has driver {OLD_VERSION}, and {VERSION} is declared" in status
    assert f"{OLD_VERSION}, by its record" in status
    assert f"Pin: version {OLD_VERSION}" in node.run(["cat", PIN]).stdout
    now = look(node, steps)
    changed = not_shown(steps, untouched, now)
    assert {path: what for path, what in changed.items() if not path.startswith(NOTES)} == {}
    assert not_done(steps, untouched, now) == []
    assert {("unload", "kernel module nvidia"), ("load", "kernel module nvidia"), ("restore", PIN)} <= {*steps}

    # Who carries a way back out may be ended just after it, and its successor begins again.
    words = ["-e", "grapnel_driver_verb=back", "-e", f"grapnel_driver_undone={undone}"]
    again = controller.run("ansible-playbook", "-i", "inventory.yaml", "--limit", NAME, str(PLAYBOOK), *words)

    assert again.returncode == 0, again.stdout + again.stderr
    assert works_with(node, OLD_VERSION), "it did not go further back"

    removed = controller.call("remove", "--driver", NAME)

    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert "1 node: 1 removed" in removed.stdout
    assert driver_packages(node) == before
    assert not is_there(node, "/sys/module/nvidia")
    assert not any(is_there(node, path) for path in (PROGRAM, HOME, PIN))
    assert node.run(["apt-mark", "showhold"]).stdout == ""

    again = controller.call("remove", "--driver", NAME)

    assert again.returncode == 0, again.stdout + again.stderr
    assert "1 node: 1 unchanged" in again.stdout


def current_change(node: Node) -> str:
    """Return the name of the driver change that a node has."""
    return str(json.loads(node.run([f"{PROGRAM}/grapnel-driver", "status"]).stdout)["current"])


@pytest.mark.long
def test_after_a_removal_an_apply_installs_the_driver_again_and_the_playbook_removes_it(
    controller: Controller, node: Node
) -> None:
    apply(controller, node, OLD_VERSION)
    assert is_there(node, "/dev/nvidia-modeset"), "without a boot in between"

    refused = controller.run(
        "ansible-playbook", "-i", "inventory.yaml", "--limit", NAME, str(PLAYBOOK), "-e", "grapnel_driver_verb=away"
    )
    removed = controller.run(
        "ansible-playbook", "-i", "inventory.yaml", "--limit", NAME, str(PLAYBOOK), "-e", "grapnel_driver_verb=remove"
    )

    assert "grapnel_driver_verb says what to do: back or remove" in " ".join((refused.stdout + refused.stderr).split())
    assert refused.returncode != 0
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert not any(is_there(node, path) for path in (PROGRAM, HOME, PIN, "/sys/module/nvidia"))
