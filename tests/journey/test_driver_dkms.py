"""Drivers with a module of DKMS, from Debian's packages: they come, change under load, return, go back and go away.

What is simulated is the kernel that loads the modules. They are built beforehand by the same dkms (``lab.modules``)
and handed over, so that no test compiles; that a node compiles while it is staged is in
``tests/playbooks/staging/test_on_node.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lab import modules
from lab.nodes import NodeSpec, Site
from tests.journey.conftest import OLD_VERSION, VERSION, Controller
from tests.journey.test_driver_swap import is_there, works_with
from tests.worker import of_this_worker

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node

# Five driver changes, a few minutes where nothing else runs.
pytestmark = [pytest.mark.nodes, pytest.mark.timeout(1500)]

TIMEOUT_S = 900  # of a command: a first installation unpacks and indexes a lot, beside whatever else runs
BOOKWORM_VERSION = "535.261.03"
HOME = "/var/lib/grapnel/driver"
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
PACKAGES = ("libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms", "nvidia-kernel-support", "nvidia-smi")
# What an operator may have written: by modprobe.d(5), a module that needs another version of it is not loaded.
RULE = "/etc/modprobe.d/site.conf"
ONLY_OLD = (
    'install nvidia-current /bin/sh -c \'test "$(modinfo -F version nvidia-current)" = '
    f"{OLD_VERSION} && exec modprobe --ignore-install nvidia-current'\n"
)
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{version}", kernelModule: {module}, companions: []}}
"""  # persistenced talks to a device that the lab does not have
# Rebuilding the initramfs, and reading all modules of a kernel again and again, would take longer than the changes.
# What is left is what the driver's modules need of the kernel's; a builder of Debian 12 has no kernel, only headers.
TRIM = """
rm -f /boot/initrd.img-*
cd /usr/lib/modules/"$(uname -r)"
[ -d kernel ] || exit 0
rm -rf kernel/fs kernel/net kernel/sound
for each in kernel/drivers/*; do case $each in */gpu|*/video|*/i2c|*/acpi|*/char) ;; *) rm -rf "$each" ;; esac; done
depmod -a
"""
# What was there before: holds, pins, sources, blacklists, packages and modules of a driver.
OPERATOR_S_OWN = """
apt-mark hold make
echo 'blacklist nouveau' > /etc/modprobe.d/no-nouveau.conf
"""
STATE = """
apt-mark showhold
find /etc/apt /etc/modprobe.d /etc/modules-load.d /etc/dkms -type f -exec sha256sum {} + | sort
dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n' | grep -E 'nvidia|libcuda'
dkms status
find /usr/lib/modules /var/lib/dkms -name 'nvidia*'
ls /sys/module
"""


@dataclass
class Operator:
    """Who changes the driver of one node, from a folder with a declaration."""

    node: Node
    controller: Controller

    def declare(self, version: str, module: str = "auto") -> None:
        text = DECLARATION.format(version=version, module=module)
        self.controller.folder.joinpath("grapnel.yaml").write_text(text)

    def plan(self) -> dict[str, Any]:
        done = self.grapnel("plan", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        (plan,) = json.loads(done.stdout)["plans"]
        return dict(plan)

    def grapnel(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.controller.grapnel(verb, "--limit", self.node.name, *words)

    def apply(self) -> subprocess.CompletedProcess[str]:
        return self.grapnel("apply", "--yes", "--no-cluster")

    def assert_applied(self, version: str) -> None:
        """Apply what is declared, and hold the node to that."""
        done = self.apply()
        assert done.returncode == 0, done.stdout + done.stderr
        self.assert_has(version)

    def assert_refused(self, *words: str) -> None:
        """Hold plan and apply to a refusal in these words, which leaves the node as it is."""
        before = self.state()
        done = self.apply()
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 1, said
        assert all(each in said for each in words), said
        assert self.state() == before

    def prepare(self, version: str) -> dict[str, Any]:
        """Declare a version, and hand over its module; returns the plan."""
        self.declare(version)
        plan = self.plan()
        archive = modules.archive(version, "proprietary", self.node.kernel_release)
        modules.hand_over(self.node, stage_item(plan), archive)
        return plan

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.node.run([PROGRAM, "status"]).stdout))

    def state(self) -> str:
        """Return what a removal gives back, and a refusal leaves as it is."""
        return self.node.run(["sh", "-c", STATE]).stdout

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
    """A site of this file's own."""
    made = Site(of_this_worker("dkms"))
    made.destroy()
    yield made
    made.destroy()


@pytest.fixture
def folder(site: Site, tmp_path: Path) -> Controller:
    """An operator's folder."""
    tmp_path.joinpath("inventory.yaml").symlink_to(site.inventory_path)
    return Controller(tmp_path, timeout_s=TIMEOUT_S)


def builder(site: Site, suite: str) -> Node:
    """Boot a node with kernel, headers and dkms, and nothing of a driver."""
    node = site.up(NodeSpec(suite, suite=suite, gpus=2, builder=True))
    for script in (TRIM, OPERATOR_S_OWN):
        node.run(["sh", "-e", "-c", script])
    return node


def test_on_debian_13_a_driver_comes_changes_under_load_returns_and_goes(site: Site, folder: Controller) -> None:
    operator = Operator(builder(site, "trixie"), folder)
    before = operator.state()
    open_modules_that_there_are_none_of(operator)
    first_installation(operator)
    staging_under_load(operator)
    return_by_itself(operator)
    upgrade(operator)
    downgrade_by_declaration(operator)
    removal(operator, before)


def open_modules_that_there_are_none_of(operator: Operator) -> None:
    """Debian has open modules of 550 alone."""
    operator.declare(OLD_VERSION, "open")

    operator.assert_refused(
        f"driver {OLD_VERSION} has no nvidia-open-kernel-dkms in the node's package sources",
        f"which there is for {VERSION}",
        "declare another driver.kernelModule or driver version",
    )


def first_installation(operator: Operator) -> None:
    """Nothing is said of the module: the branch decides, and the plan gives the reason."""
    plan = operator.prepare(OLD_VERSION)

    operator.assert_applied(OLD_VERSION)

    (derived,) = (one for one in plan["derived"] if one["key"] == "driver.kernelModule")
    assert (derived["value"], derived["reason"]) == (
        "proprietary",
        "branches before 560 have the proprietary module",
    )


def staging_under_load(operator: Operator) -> None:
    """A process keeps a GPU open, and does not notice."""
    node = operator.node
    node.run(["systemd-run", "--unit=job", "--property=StandardInput=file:/dev/nvidia0", "sleep", "3600"])
    identifier = stage_item(operator.prepare(VERSION))

    done = operator.grapnel("stage", "--no-cluster")

    staged = {one["id"]: one for one in operator.status()["staged"]}
    assert done.returncode == 0, done.stdout + done.stderr
    assert (staged[identifier]["version"], staged[identifier]["complete"]) == (VERSION, True)
    assert staged[identifier]["cost"]["build_s"] == 0
    assert node.run(["systemctl", "is-active", "job"]).stdout.strip() == "active"
    operator.assert_has(OLD_VERSION)
    node.run(["systemctl", "stop", "job"])


def return_by_itself(operator: Operator) -> None:
    """The new module is loaded, and modprobe lets none depend on it: the node has the former driver afterwards."""
    node = operator.node
    (node.root / RULE.lstrip("/")).write_text(ONLY_OLD)

    done = operator.apply()

    run = operator.status()["run"]
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 1, said
    assert (run["state"], run["step"]) == ("returned", "load"), run
    assert f"kernel module {VERSION} is loaded, but not nvidia_uvm" in said
    assert node.run(["modinfo", "-F", "version", "nvidia-current"]).stdout.strip() == OLD_VERSION
    assert node.run(["cat", "/sys/module/nvidia/version"]).stdout.strip() == OLD_VERSION
    assert node.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).stdout.split() == (
        [OLD_VERSION] * len(node.gpus)
    )
    node.run(["rm", RULE])


def upgrade(operator: Operator) -> None:
    """The cause is gone: what was staged is still there, and is swapped in."""
    before = operator.status()["run"]["run"]

    operator.assert_applied(VERSION)

    run = operator.status()["run"]
    assert (run["state"], run["reason"]) == ("done", "")
    assert run["run"] != before
    assert run["out_of_service_s"] > 0
    assert not is_there(operator.node, "/etc/dkms/no-autoinstall")


def downgrade_by_declaration(operator: Operator) -> None:
    """The former module is in the staged set of the driver that the node has: nothing is built for it."""
    operator.declare(OLD_VERSION)

    operator.assert_applied(OLD_VERSION)

    status = operator.status()
    current = next(one for one in status["staged"] if one["id"] == status["current"])
    assert current["cost"]["build_s"] == 0
    assert operator.plan()["items"] == []


def removal(operator: Operator, before: str) -> None:
    """What was there before the first driver is there again, and nothing else."""
    done = operator.grapnel("remove", "--driver", "--yes", "--no-cluster")

    assert done.returncode == 0, done.stdout + done.stderr
    assert operator.state() == before
    assert not is_there(operator.node, HOME)


def test_on_debian_12_a_driver_comes_and_goes(site: Site, folder: Controller, pytestconfig: pytest.Config) -> None:
    """Debian 12 has dkms 3.0, which signs nothing, and drivers of one branch.

    With ``--all-systems`` it changes as well, between two drivers whose modules take ten minutes of CPU each to build.
    """
    operator = Operator(builder(site, "bookworm"), folder)
    before = operator.state()
    if pytestconfig.getoption("--all-systems"):
        operator.prepare(BOOKWORM_VERSION)
        operator.assert_applied(BOOKWORM_VERSION)

    operator.declare(VERSION)
    operator.assert_refused(f"driver {VERSION} is in no package source of the node; nearest: {OLD_VERSION}")
    operator.prepare(OLD_VERSION)
    operator.assert_applied(OLD_VERSION)

    removal(operator, before)
