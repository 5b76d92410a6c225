"""Drivers with a module of DKMS, on a node with Debian's packages: they come, change under load, return, and go back.

What is simulated is the kernel that loads the modules. They are built beforehand by the same dkms (``lab.modules``)
and handed over, so that no test compiles.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from lab import modules
from lab.nodes import NodeSpec, Site
from tests.journey.conftest import OLD_VERSION, VERSION
from tests.journey.test_driver_swap import is_there, works_with
from tests.worker import of_this_worker

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from lab.nodes import Node
    from tests.journey.conftest import Controller

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.timeout(1500),
]  # five driver changes; a few minutes where nothing else runs

NAME = "dkms"
TIMEOUT_S = 900  # of a command: a first installation unpacks and indexes a lot, beside whatever else runs
HOME = "/var/lib/grapnel/driver"
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
PACKAGES = ("libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms", "nvidia-kernel-support", "nvidia-smi")
# What an operator may have written: a rule of modprobe(8) that lets no other version in.
RULE = "/etc/modprobe.d/site.conf"
ONLY_OLD = (
    'install nvidia-current /bin/sh -c \'test "$(modinfo -F version nvidia-current)" = '
    f"{OLD_VERSION} && exec modprobe --ignore-install nvidia-current'\n"
)
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{version}", companions: []}}
"""  # persistenced talks to a device that the lab does not have


@dataclass
class Operator:
    """Who changes the driver of one node, from a folder with a declaration."""

    node: Node
    controller: Controller

    def declare(self, version: str) -> None:
        self.controller.folder.joinpath("grapnel.yaml").write_text(DECLARATION.format(version=version))

    def plan(self) -> dict[str, Any]:
        done = self.controller.grapnel("plan", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        (plan,) = json.loads(done.stdout)["plans"]
        return dict(plan)

    def apply(self) -> subprocess.CompletedProcess[str]:
        return self.controller.grapnel("apply", "--yes", "--no-cluster")

    def hand_over(self, identifier: str, version: str) -> None:
        """Put the built module where a bundle's files for a change go."""
        kernel = self.node.kernel_release
        archive = modules.archive(version, "proprietary", kernel)
        folder = self.node.root / f"{HOME}/incoming/{identifier}".lstrip("/")
        folder.joinpath("modules").mkdir(parents=True)
        place = f"modules/{kernel}.tar.gz"
        shutil.copy(archive, folder / place)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        folder.joinpath("list.json").write_text(json.dumps({place: digest}))

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.node.run([PROGRAM, "status"]).stdout))

    def assert_has(self, version: str) -> None:
        """Hold the node to packages, module on disk, module loaded, and the hook's inventory of one version."""
        form = "${db:Status-Abbrev}${source:Upstream-Version}\n"
        shown = self.node.run(["dpkg-query", "--show", "--showformat", form, *PACKAGES]).stdout.splitlines()
        assert shown == [f"hi {version}"] * len(PACKAGES)
        on_disk = self.node.run(["modinfo", "-F", "version", "nvidia-current"]).stdout.strip()
        built = self.node.run(["dkms", "status"]).stdout.splitlines()
        assert on_disk == version
        assert built == [f"nvidia-current/{version}, {self.node.kernel_release}, x86_64: installed"]
        assert works_with(self.node, version)


def stage_item(plan: dict[str, Any]) -> str:
    """Return the name of the change that a plan stages."""
    return next(str(item["to"]) for item in plan["items"] if item["action"] == "stage")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site of this file's own: its inventory has one node."""
    made = Site(of_this_worker("dkms"))
    made.destroy()
    yield made
    made.destroy()


@pytest.fixture(scope="module")
def builder(site: Site) -> Node:
    """A Debian 13 node with kernel, headers and dkms, and nothing of a driver.

    It has no initramfs: rebuilding it after each of the changes would take longer than they do.
    """
    node = site.up(NodeSpec(NAME, suite="trixie", gpus=2, builder=True))
    node.run(["sh", "-c", "rm /boot/initrd.img-*"])
    return node


@pytest.fixture
def operator(builder: Node, controller: Controller, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.setenv("XDG_STATE_HOME", str(controller.folder / "state"))
    return Operator(builder, replace(controller, timeout_s=TIMEOUT_S))


def test_a_driver_with_a_module_of_dkms_comes_changes_and_returns(operator: Operator) -> None:
    first_installation(operator)
    staging_under_load(operator)
    return_by_itself(operator)
    upgrade(operator)
    downgrade_by_declaration(operator)


def first_installation(operator: Operator) -> None:
    """Nothing is said of the module: the branch decides, and the plan gives the reason."""
    operator.declare(OLD_VERSION)
    plan = operator.plan()
    operator.hand_over(stage_item(plan), OLD_VERSION)

    done = operator.apply()

    (derived,) = (one for one in plan["derived"] if one["key"] == "driver.kernelModule")
    assert (derived["value"], derived["reason"]) == (
        "proprietary",
        "branches before 560 have the proprietary module",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    operator.assert_has(OLD_VERSION)
    assert operator.plan()["items"] == []


def staging_under_load(operator: Operator) -> None:
    """A process keeps a GPU open, and does not notice."""
    node = operator.node
    node.run(["systemd-run", "--unit=job", "--property=StandardInput=file:/dev/nvidia0", "sleep", "3600"])
    operator.declare(VERSION)
    identifier = stage_item(operator.plan())
    operator.hand_over(identifier, VERSION)

    done = operator.controller.grapnel("stage", "--no-cluster")

    staged = {one["id"]: one for one in operator.status()["staged"]}
    assert done.returncode == 0, done.stdout + done.stderr
    assert (staged[identifier]["version"], staged[identifier]["complete"]) == (VERSION, True)
    assert staged[identifier]["cost"]["build_s"] == 0
    assert node.run(["systemctl", "is-active", "job"]).stdout.strip() == "active"
    operator.assert_has(OLD_VERSION)
    node.run(["systemctl", "stop", "job"])


def return_by_itself(operator: Operator) -> None:
    """The kernel would take the new module, modprobe does not load it: the node has the former driver afterwards."""
    node = operator.node
    (node.root / RULE.lstrip("/")).write_text(ONLY_OLD)

    done = operator.apply()

    run = operator.status()["run"]
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert (run["state"], run["step"]) == ("returned", "load"), run
    assert f"kernel module {VERSION} cannot be loaded" in said
    assert node.run(["modinfo", "-F", "version", "nvidia-current"]).stdout.strip() == OLD_VERSION
    assert node.run(["cat", "/sys/module/nvidia/version"]).stdout.strip() == OLD_VERSION
    assert node.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).stdout.split() == (
        [OLD_VERSION] * len(node.gpus)
    )
    node.run(["rm", RULE])


def upgrade(operator: Operator) -> None:
    """The cause is gone: what was staged is still there, and is swapped in."""
    before = operator.status()["run"]["run"]

    done = operator.apply()

    run = operator.status()["run"]
    assert done.returncode == 0, done.stdout + done.stderr
    assert (run["state"], run["reason"]) == ("done", "")
    assert run["run"] != before
    assert run["out_of_service_s"] > 0
    operator.assert_has(VERSION)
    assert not is_there(operator.node, "/etc/dkms/no-autoinstall")


def downgrade_by_declaration(operator: Operator) -> None:
    """The former module is in the staged set of the driver that the node has: nothing is built for it."""
    operator.declare(OLD_VERSION)

    done = operator.apply()

    status = operator.status()
    assert done.returncode == 0, done.stdout + done.stderr
    current = next(one for one in status["staged"] if one["id"] == status["current"])
    assert current["cost"]["build_s"] == 0
    operator.assert_has(OLD_VERSION)
    assert operator.plan()["items"] == []
