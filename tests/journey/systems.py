"""Nodes that say they are other systems: the drivers between which they change, and what is looked at on them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lab import sources
from lab.bundle.repository import PUBLIC_KEY
from lab.nodes import NodeSpec
from lab.sources.content import BUILDS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

SOURCES = "/srv/bundle"  # on a node: where its repositories are
HOME = "/var/lib/grapnel/driver"
RPM = ["rpm", "-qa", "--qf", "%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n"]
DPKG = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\n"]
# What a removal gives back, besides packages: sources and keys, module streams, pins, locks, settings of modules.
SETTINGS = (
    "/etc/yum.repos.d /etc/zypp /etc/apt/sources.list.d /etc/apt/keyrings /etc/apt/preferences.d /etc/pki/rpm-gpg "
    "/etc/dnf/modules.d /etc/dnf/plugins/versionlock.list /etc/modprobe.d /etc/modules-load.d /etc/dkms"
)


@dataclass(frozen=True)
class Driver:
    """A driver as it is declared, and as it is found on the node."""

    version: str
    flavour: str = "open"
    declared: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A system with the drivers between which its node changes; ``is_built`` says whether DKMS builds the module.

    ``lock`` is what an administrator does to keep a package that has nothing to do with the driver.
    """

    system: str
    old: Driver
    new: Driver
    lock: str
    shown: str
    is_built: bool = False
    kernels: tuple[str, ...] = ()


VERSIONLOCK = "dnf -y -q versionlock add bash; echo '# of the administrator' >> /etc/dnf/plugins/versionlock.list"
LISTED = "sed -n '/^[^#]/p' /etc/dnf/plugins/versionlock.list"
ZYPPER_LOCKS = "sed -n 's/^solvable_name: //p' /etc/zypp/locks"


def of_dnf(system: str, old: Driver, new: Driver) -> Case:
    return Case(system, old, new, VERSIONLOCK, LISTED, is_built=True)


PROPRIETARY = {"kernelModule": "proprietary"}
CASES = {
    case.system: case
    for case in (
        Case(
            # The newest of two branches: Canonical's modules are those of a branch's newest driver.
            "ubuntu2404", Driver("570.133.20"), Driver("580.173.02"), "apt-mark hold tar", "apt-mark showhold",
            kernels=("6.8.0-63-generic",),
        ),
        # Another branch: another stream, and another name of the module in DKMS.
        of_dnf("rocky9", Driver("570.133.20"), Driver("580.126.09")),
        Case("sles15", Driver("570.133.20"), Driver("580.65.06"), "zypper -nq addlock bash", ZYPPER_LOCKS),
        # Another flavour: the packages exclude each other, and both modules have the same name in DKMS.
        of_dnf("rhel8", Driver("580.95.05", "proprietary", PROPRIETARY), Driver("580.126.09")),
        of_dnf("rocky10", Driver("580.95.05"), Driver("580.126.09")),
        of_dnf("al2023", Driver("580.95.05"), Driver("580.126.09")),
    )
}  # fmt: skip


@dataclass
class Machine:
    """A node, whoever operates it, and what is looked at on it.

    ``bundle`` are words that name one to verbs, ``sent`` tells what the node has sent that it should not have.
    """

    case: Case
    node: Node
    controller: Controller
    bundle: tuple[str, ...] = ()
    sent: Callable[[], list[str]] = list

    @property
    def system(self) -> sources.System:
        return sources.find_system(self.case.system)

    def declare(self, driver: Driver) -> None:
        declared: dict[str, Any] = {"version": driver.version, "companions": [], **driver.declared}
        if self.system.manager == "apt":
            declared["source"] = "canonical"
        else:
            key = self.node.machine.bundle.joinpath(PUBLIC_KEY).read_text()
            declared["source"] = "nvidia"
            declared["repository"] = {"url": f"file://{SOURCES}/{self.system.repository}", "key": key}
        without = {"enabled": False}
        spec = {"driver": declared, "runtime": without, "plugin": without}
        document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": spec}
        self.controller.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))

    def call(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        done = self.controller.grapnel(verb, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.sent() == [], verb
        return done

    def change(self, verb: str, *words: str) -> str:
        return self.call(verb, "--yes", "--no-cluster", *words).stdout

    def apply(self, driver: Driver) -> None:
        self.declare(driver)
        self.apply_staged()

    def apply_staged(self) -> None:
        assert "1 converged" in self.change("apply", self.node.name, *self.bundle)

    def say(self, script: str) -> str:
        return self.node.run(["sh", "-c", script]).stdout.strip()

    def packages(self) -> list[str]:
        return sorted(self.node.run(DPKG if self.system.manager == "apt" else RPM).stdout.splitlines())

    def settings(self) -> str:
        return self.say(f"find {SETTINGS} -type f -exec sha256sum '{{}}' + 2>/dev/null | sort -k 2")

    def locks(self) -> list[str]:
        return self.say(self.case.shown).splitlines()

    def builds(self) -> list[str]:
        """Return the driver versions in the order in which the node has compiled them."""
        return [line.split()[0] for line in self.say(f"cat {BUILDS} 2>/dev/null || :").splitlines()]

    def assert_has(self, driver: Driver) -> None:
        smi = self.say("nvidia-smi -L").splitlines()
        banner = self.say("cat /proc/driver/nvidia/version").splitlines()[0]
        assert len(smi) == len(self.node.gpus)
        assert all(gpu.uuid in line for gpu, line in zip(self.node.gpus, smi, strict=True))
        assert driver.version in banner.split()
        assert ("Open Kernel Module" in banner) == (driver.flavour == "open")
        for kernel in (self.system.kernel_release, *self.case.kernels):
            fields = (f"modinfo -k {kernel} -F {name} nvidia" for name in ("version", "license"))
            module = self.say("; ".join(fields)).splitlines()
            assert module == [driver.version, "Dual MIT/GPL" if driver.flavour == "open" else "NVIDIA"]
        self._assert_locked(driver)

    def _assert_locked(self, driver: Driver) -> None:
        """Every package of the driver is locked, at the version that it has where locks know one; so is the other."""
        # The signatures for a kernel's modules are one package for all drivers.
        of_driver = (row for row in self.packages() if driver.version in row or "linux-signatures" in row)
        names = [row.split()[-2:] for row in of_driver if "nvidia" in row]
        if self.system.manager == "dnf":
            locked = [f"{name}-{version}.*" for name, version in names]
        else:
            locked = [name for name, _ in names]
        shown = self.locks()
        assert locked
        assert sorted({*locked} - {*shown}) == []
        assert not [line for line in shown if "nvidia" in line and line not in locked]
        assert [line for line in shown if "bash" in line or line == "tar"]


def add_node(site: Site, case: Case, controller: Controller) -> Machine:
    """Return a node of a system, whose administrator keeps a package as it is, and has a second kernel or has not."""
    node = site.up(NodeSpec(case.system, suite=sources.BASE_SUITE, gpus=2, system=case.system))
    machine = Machine(case, node, controller)
    machine.say(case.lock)
    for kernel in case.kernels:
        machine.say(f"mkdir -p /lib/modules/{kernel}; touch /lib/modules/{kernel}/modules.order /boot/vmlinuz-{kernel}")
    return machine


def change_there_and_back(machine: Machine, swapping: AbstractContextManager[None]) -> None:
    """Have the driver come, change from staged files, go back, and go; ``swapping`` is how it is while it changes."""
    case = machine.case
    packages, settings, locks = machine.packages(), machine.settings(), machine.locks()
    is_built = case.is_built and not machine.bundle

    machine.apply(case.old)
    machine.assert_has(case.old)
    assert machine.controller.plan_items(machine.node.name, *machine.bundle) == []

    machine.declare(case.new)
    machine.call("stage", machine.node.name, *machine.bundle)
    machine.assert_has(case.old)
    with swapping:
        machine.apply_staged()
    machine.assert_has(case.new)
    assert machine.builds() == [driver.version for driver in (case.old, case.new) if is_built]

    said = machine.change("rollback", machine.node.name)
    assert f"{case.new.version} → {case.old.version}" in said
    machine.assert_has(case.old)
    assert len(machine.builds()) == 2 * is_built

    assert "1 removed" in machine.change("remove", "--driver", machine.node.name)
    assert machine.packages() == packages
    assert machine.settings() == settings
    assert machine.locks() == locks
    assert machine.say(f"ls -d {HOME} /sys/module/nvidia 2>/dev/null || :") == ""
