"""A driver upgrade with plain ansible-playbook: refused while a GPU is held, whole when none is, resumable."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lab.nodes import NodeSpec
from tests.journey.conftest import OLD_VERSION, ROOT, TIMEOUT_S, VERSION, fingerprint
from tests.journey.snapshot import take_snapshot
from tests.journey.test_trouble import wait_for_dpkg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = pytest.mark.nodes

NAME = "swap"
VERSIONS = (OLD_VERSION, VERSION)
RELEASED = "/var/lib/grapnel/node/released.json"
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
LEFT_OVER = "/var/lib/grapnel/site-upgrade"


def playbook(controller: Controller, name: str = "site.yml", **variables: object) -> list[str]:
    """Return the words of a person who runs a playbook of the collection on the node."""
    given = {"grapnel_stack_file": str(controller.folder / "grapnel.yaml"), **variables}
    path = str(ROOT / "playbooks" / name)
    return ["ansible-playbook", path, "-i", "inventory.yaml", "--limit", NAME, "-e", json.dumps(given)]


def run(controller: Controller, name: str = "site.yml", **variables: object) -> subprocess.CompletedProcess[str]:
    return controller.run(*playbook(controller, name, **variables))


def loaded(node: Node) -> str:
    return node.run(["cat", "/sys/module/nvidia/version"]).stdout.strip()


def is_there(node: Node, path: str) -> bool:
    return node.run(["test", "-e", path], check=False).returncode == 0


def starts_of_daemon(node: Node) -> int:
    said = node.run(["journalctl", "--quiet", "--output=cat", "--unit=grapnel-node", "--grep=^Started "], check=False)
    return len(said.stdout.splitlines())


def works_with(node: Node, version: str) -> bool:
    """Whether module, libraries and the hook's inventory are of a version, and the GPUs are in service."""
    shown = node.run(["nvidia-smi", "--query-gpu=driver_version,uuid", "--format=csv,noheader"]).stdout
    inventory = json.loads((node.root / "run/grapnel/inventory.json").read_text())
    assert not is_there(node, RELEASED)
    assert not is_there(node, LEFT_OVER)
    assert sorted(shown.splitlines()) == sorted(f"{version}, {gpu.uuid}" for gpu in node.gpus)
    return loaded(node) == inventory["driver_version"] == version


@dataclass
class Swap:
    """A node, the driver it has ("" after a test that did not come to its end), and who operates it."""

    node: Node
    has: str = ""
    controller: Controller | None = None

    @property
    def next(self) -> str:
        """The driver that it does not have: tests change between the two."""
        return VERSIONS[1 - VERSIONS.index(self.has)]

    def declare(self, version: str) -> None:
        """Declare a driver and put its kernel module on the node's disk."""
        assert self.controller is not None
        self.controller.declare(version)
        self.node.install_module(version)

    def settle(self, version: str) -> None:
        """Bring the node to a driver, and hold the playbook to an empty plan and a driver that works."""
        assert self.controller is not None
        self.has = ""
        self.declare(version)
        done = run(self.controller)
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.controller.plan_items(NAME) == []
        assert works_with(self.node, version)
        self.has = version


@pytest.fixture(scope="module")
def machine(site: Site) -> Iterator[Swap]:
    """A Debian 13 node whose kernel loads the older driver at boot."""
    yield Swap(site.up(NodeSpec(NAME, suite="trixie", gpus=2, driver_module=OLD_VERSION)))
    site.remove(NAME)


@pytest.fixture
def swap(machine: Swap, controller: Controller) -> Swap:
    """The node with one of the drivers, in service."""
    machine.controller = controller
    if not machine.has:
        machine.settle(OLD_VERSION)
    controller.declare(machine.has)
    return machine


@pytest.fixture
def job(swap: Swap) -> Iterator[str]:
    """A process that works with the first GPU."""
    swap.node.run(["systemd-run", "--unit=job", "--property=StandardInput=file:/dev/nvidia0", "sleep", "3600"])
    yield "job.service"
    swap.node.run(["systemctl", "stop", "job.service"], check=False)


def test_a_module_that_is_not_on_disk_is_refused_before_anything_is_changed(swap: Swap, controller: Controller) -> None:
    controller.declare(swap.next)
    before = fingerprint(swap.node)

    done = run(controller)

    assert done.returncode != 0
    assert (
        f"driver {swap.next} needs kernel module {swap.next}: swap has {swap.has} on disk" in done.stdout + done.stderr
    )
    assert fingerprint(swap.node) == before
    assert works_with(swap.node, swap.has)


def test_a_held_gpu_is_refused_with_the_holder_s_name_and_nothing_is_changed(
    swap: Swap, controller: Controller, job: str
) -> None:
    swap.declare(swap.next)
    foreseen = controller.run(*playbook(controller), "--check", "--diff")
    planned, untouched = controller.plan_items(NAME), take_snapshot(swap.node)
    staged = controller.grapnel("stage", NAME)
    changed = untouched.difference(take_snapshot(swap.node))
    plan = _plan(controller)
    before = fingerprint(swap.node)

    checked = controller.run(*playbook(controller), "--check", "--diff")
    refused = run(controller, grapnel_wait_s=0)
    by_role = run(controller, "apply.yml", grapnel_plan=plan)
    after = fingerprint(swap.node)
    swap.node.install_module(swap.has)

    assert [done.returncode for done in (foreseen, staged, checked)] == [0, 0, 0], staged.stdout + staged.stderr
    assert "stage" in {item["action"] for item in planned}
    assert changed, "the plan shows it"
    assert [one for one in changed if not one.startswith("/var/lib/grapnel/driver/")] == []
    assert f"+kernel module nvidia {swap.next}" in foreseen.stdout
    assert "--- before: not staged" in foreseen.stdout
    assert f"-kernel module nvidia {swap.has}" in checked.stdout
    assert f"+kernel module nvidia {swap.next}" in checked.stdout
    assert "not staged" not in checked.stdout
    warned = next(line for line in checked.stderr.splitlines() if "the driver cannot be changed now" in line)
    assert f"{job}) has /dev/nvidia0 open" in warned
    for done in (refused, by_role):
        said = done.stdout + done.stderr
        assert done.returncode != 0
        assert "sleep (pid " in said
        assert f"{job}) has /dev/nvidia0 open" in said
        assert "nothing was changed" in said
    assert after == before
    assert works_with(swap.node, swap.has)


def _plan(controller: Controller) -> dict[str, object]:
    """Return the plan of a node whose driver is staged: nothing is left for later, and its record is written last."""
    done = controller.grapnel("plan", "--json", NAME)
    (plan,) = json.loads(done.stdout)["plans"]
    assert [item["action"] for item in plan["items"]][-3:] == ["reload", "restart", "write"]
    assert "drain" in {item["disruption"] for item in plan["items"]}
    assert not any(item["deferred"] for item in plan["items"])
    return dict(plan)


def test_a_free_node_gets_libraries_and_module_and_its_daemon_restarts_once(swap: Swap) -> None:
    modules = swap.node.run(["ls", "/sys/module"]).stdout
    before = starts_of_daemon(swap.node)

    swap.settle(swap.next)

    assert swap.node.run(["ls", "/sys/module"]).stdout == modules
    assert starts_of_daemon(swap.node) == before + 1
    assert "libcuda1" in swap.node.run(["apt-mark", "showhold"]).stdout


def test_a_module_that_the_kernel_refuses_leaves_the_node_out_of_service_until_the_next_run(
    swap: Swap, controller: Controller
) -> None:
    target, node = swap.next, swap.node
    swap.declare(target)
    node.run(["sh", "-c", "mkdir -p /run/gpusim/fail; echo 129 > /run/gpusim/fail/nvidia"])

    failed = run(controller)
    is_out = is_there(node, RELEASED)
    node.run(["rm", "-r", "/run/gpusim/fail"])
    items = controller.plan_items(NAME)
    swap.settle(target)

    said = failed.stdout + failed.stderr
    assert failed.returncode != 0
    assert "Key was rejected by service" in said
    assert "stay out of service: fix the cause and run the playbook again" in said
    assert is_out
    assert next(item["action"] for item in items if item["role"] == "driver") == "load"


@contextlib.contextmanager
def playbook_at_work(controller: Controller, node: Node) -> Iterator[subprocess.Popen[bytes]]:
    """Run the playbook until packages are being installed."""
    with subprocess.Popen(
        playbook(controller),
        cwd=controller.folder,
        env=controller.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        wait_for_dpkg(node)
        yield process


def test_a_swap_goes_on_without_the_playbook_that_began_it(swap: Swap, controller: Controller) -> None:
    target = swap.next
    swap.declare(target)
    with playbook_at_work(controller, swap.node) as process:
        os.killpg(process.pid, signal.SIGKILL)
    swap.node.run(["sh", "-c", "while systemctl is-active --quiet grapnel-driver; do sleep 0.1; done"])
    status = json.loads(swap.node.run([PROGRAM, "status"]).stdout)

    assert (status["run"]["state"], status["run"]["reason"]) == ("done", "")
    assert loaded(swap.node) == target
    assert is_there(swap.node, RELEASED)
    swap.settle(target)


def test_a_killed_playbook_converges_when_it_is_run_again_at_once(swap: Swap, controller: Controller) -> None:
    target = swap.next
    swap.declare(target)
    with playbook_at_work(controller, swap.node) as process:
        os.killpg(process.pid, signal.SIGKILL)
    assert is_there(swap.node, RELEASED)

    swap.settle(target)


def test_a_killed_swap_is_reported_and_converges_when_the_playbook_is_run_again(
    swap: Swap, controller: Controller
) -> None:
    target = swap.next
    swap.declare(target)
    with playbook_at_work(controller, swap.node) as process:
        swap.node.run(["systemctl", "kill", "--signal=KILL", "grapnel-driver.service"])
        code = process.wait(TIMEOUT_S)
    items = controller.plan_items(NAME)

    assert code != 0
    assert is_there(swap.node, RELEASED)
    assert ("repair", "running") in {(item["action"], item["from"]) for item in items if item["role"] == "driver"}
    swap.settle(target)


def test_what_somebody_else_took_out_of_service_stays_so(swap: Swap, controller: Controller) -> None:
    released = run(controller, "release.yml")
    target = swap.next
    swap.has = ""

    swap.declare(target)
    done = run(controller)
    is_out = is_there(swap.node, RELEASED)
    resumed = run(controller, "resume.yml")

    assert (released.returncode, done.returncode, resumed.returncode) == (0, 0, 0), done.stdout + done.stderr
    assert is_out
    assert works_with(swap.node, target)
    swap.has = target


def test_the_playbooks_verify_what_they_are_told_to(swap: Swap, controller: Controller) -> None:
    right = {"schema": "grapnel.dev/expectation/v1alpha1", "driverVersion": swap.has, "gpuCount": len(swap.node.gpus)}

    good = run(controller, "verify.yml", grapnel_expectation=right)
    bad = run(controller, "verify.yml", grapnel_expectation=right | {"driverVersion": swap.next, "gpuCount": 3})

    assert good.returncode == 0, good.stdout + good.stderr
    assert bad.returncode != 0
    assert "module-version" in bad.stdout + bad.stderr
    assert "gpu-count: 2 of 3 gpus answer" in bad.stdout + bad.stderr
