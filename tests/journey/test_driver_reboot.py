"""A driver whose module nothing but a reboot frees: refused, and with leave to reboot exchanged, there and back.

One of the GPUs is cut by MIG, which every unloaded module forgets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.journey.conftest import OLD_VERSION, VERSION
from tests.journey.snapshot import take_snapshot
from tests.journey.test_driver_swap import works_with

if TYPE_CHECKING:
    from lab.nodes import Node
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]  # three changes of a driver, and two reboots

NAME = "rebooted"
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
RESTORE = "/var/lib/grapnel/driver/restore.json"
PINNED = "nvidia is in use once by something without a device node open or mapped"


def allow_reboots(controller: Controller) -> None:
    place = controller.folder / "grapnel.yaml"
    place.write_text(place.read_text().replace("kernelModule: none", "kernelModule: none, reboot: true"))


def pin(node: Node) -> None:
    """Have the kernel use the module until the next boot, without a process."""
    node.run(["sh", "-c", "mkdir -p /run/gpusim/pins && echo 1 >/run/gpusim/pins/nvidia"])


def boot_id(node: Node) -> str:
    return node.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()


def last_run(node: Node) -> tuple[dict[str, object], list[tuple[str, str]]]:
    status = json.loads(node.run([PROGRAM, "status"]).stdout)
    return status["run"], [(each["step"], each["state"]) for each in status["steps"]]


@pytest.mark.long
def test_a_pinned_module_is_exchanged_with_a_reboot_there_and_back(controller: Controller, node: Node) -> None:
    installed(controller)
    cut_by_mig(node)
    refused_without_leave(controller, node)
    exchanged_with_a_reboot(controller, node)
    returned_with_a_reboot(controller, node)
    rebooted_for_its_own_sake(controller, node)


def installed(controller: Controller) -> None:
    controller.declare(OLD_VERSION)
    done = controller.call("apply", NAME)
    assert done.returncode == 0, done.stdout + done.stderr


LAYOUT = [
    {"profile": 2, "start": 0, "size": 4, "slices": [{"profile": 2, "start": 0, "size": 3}]},
    {"profile": 0, "start": 4, "size": 1, "slices": [{"profile": 0, "start": 0, "size": 1}]},
]


def cut_by_mig(node: Node) -> None:
    """Have the program cut a GPU, as if it had found it so before a run."""
    noted = json.dumps({"modules": [], "services": [], "mig": {node.gpus[1].uuid: LAYOUT}})
    node.run(["tee", RESTORE], input_text=noted)
    node.run([PROGRAM, "mig", "restore"])
    node.run(["rm", RESTORE])
    assert_is_cut(node)


def assert_is_cut(node: Node) -> None:
    assert json.loads(node.run([PROGRAM, "mig"]).stdout) == {node.gpus[1].uuid: LAYOUT}
    assert "MIG 3g.20gb" in node.run(["nvidia-smi", "-L"]).stdout


def refused_without_leave(controller: Controller, node: Node) -> None:
    controller.declare(VERSION)
    node.install_module(VERSION)
    pin(node)
    boot = boot_id(node)

    done = controller.call("apply", NAME)

    said = " ".join(done.stdout.split())
    assert done.returncode == 1, said
    assert PINNED in said
    assert "only a reboot helps, and the declaration does not allow one: declare driver.reboot: true" in said
    record, steps = last_run(node)
    assert (record["state"], record["changed"]) == ("failed", False)
    assert steps[-2:] == [("check", "failed"), ("finish", "failed")]
    assert node.run(["cat", "/sys/module/nvidia/version"]).stdout.strip() == OLD_VERSION
    assert boot_id(node) == boot


def exchanged_with_a_reboot(controller: Controller, node: Node) -> None:
    allow_reboots(controller)
    boot = boot_id(node)

    done = controller.call("apply", NAME)

    assert done.returncode == 0, done.stdout + done.stderr
    assert works_with(node, VERSION)
    assert boot_id(node) != boot
    assert_is_cut(node)
    record, steps = last_run(node)
    assert (record["state"], record["reboots"]) == ("done", 1)
    assert steps.index(("hold", "done")) < steps.index(("reboot", "begin")) < steps.index(("reboot", "done"))
    assert controller.plan_items(NAME) == []


def returned_with_a_reboot(controller: Controller, node: Node) -> None:
    node.install_module(OLD_VERSION)  # as the packages of a managed module do
    pin(node)
    boot = boot_id(node)

    done = controller.call("rollback", NAME)

    assert done.returncode == 0, done.stdout + done.stderr
    assert works_with(node, OLD_VERSION)
    assert boot_id(node) != boot
    assert_is_cut(node)
    record, _ = last_run(node)
    assert (record["state"], record["verb"], record["reboots"]) == ("done", "back", 1)


def rebooted_for_its_own_sake(controller: Controller, node: Node) -> None:
    """`grapnel reboot` reboots a node that needs it, once, and leaves it with the driver and the GPUs that it had."""
    controller.declare(OLD_VERSION)
    node.run(["sh", "-c", "touch /run/reboot-required && echo linux-image-6.12 >/run/reboot-required.pkgs"])
    boot, untouched = boot_id(node), take_snapshot(node)

    planned = controller.grapnel("reboot", "--needed", NAME, "--no-cluster", "--plan", "--json")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert json.loads(planned.stdout)["needs"] == {NAME: ["linux-image-6.12 asked for it"]}
    assert boot_id(node) == boot, "a plan changes nothing"

    done = controller.call("reboot", "--needed", NAME)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 node: 1 rebooted" in done.stdout
    after = boot_id(node)
    assert after != boot
    assert untouched.difference(take_snapshot(node)) == {}, "the plan shows a reboot, and nothing else"
    assert works_with(node, OLD_VERSION)
    assert_is_cut(node)

    again = controller.call("reboot", NAME)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"{NAME} is not rebooted: was rebooted at" in again.stdout
    assert boot_id(node) == after
