"""A driver on nodes that say they are other systems: it comes, changes from staged files, goes back, and goes.

Package managers, repositories, signatures, locks, DKMS and module streams are real; the packages are the lab's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from lab import sources
from lab.nodes import NodeSpec
from lab.sources.content import BUILDS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]  # four driver changes with a real package manager

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
ALWAYS = ("ubuntu2404", "rocky9", "sles15")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = CASES if metafunc.config.getoption("--all-systems") else ALWAYS
    metafunc.parametrize("case", [CASES[name] for name in names], ids=names)


@dataclass
class Machine:
    """A node, whoever operates it, and what is looked at on it."""

    SOURCES: ClassVar[str] = "/srv/bundle"

    case: Case
    node: Node
    controller: Controller

    @property
    def system(self) -> sources.System:
        return sources.find_system(self.case.system)

    def declare(self, driver: Driver) -> None:
        declared: dict[str, Any] = {"version": driver.version, "companions": [], **driver.declared}
        if self.system.manager == "apt":
            declared["source"] = "canonical"
        else:
            key = self.say(f"cat {self.SOURCES}/signing-key.asc")
            declared["source"] = "nvidia"
            declared["repository"] = {"url": f"file://{self.SOURCES}/{self.system.repository}", "key": f"{key}\n"}
        without = {"enabled": False}
        spec = {"driver": declared, "runtime": without, "plugin": without}
        document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": spec}
        self.controller.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))

    def call(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        done = self.controller.grapnel(verb, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def change(self, verb: str, *words: str) -> str:
        return self.call(verb, "--yes", "--no-cluster", *words).stdout

    def apply(self, driver: Driver) -> None:
        self.declare(driver)
        self.apply_staged()

    def apply_staged(self) -> None:
        assert "1 converged" in self.change("apply", "--limit", self.node.name)

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


@pytest.fixture
def machine(case: Case, site: Site, controller: Controller, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A node of a system, whose administrator keeps a package as it is, and has a second kernel or has not."""
    monkeypatch.setenv("XDG_STATE_HOME", str(controller.folder / "state"))
    spec = NodeSpec(case.system, suite=sources.BASE_SUITE, gpus=2, system=case.system)
    node = site.up(spec)
    at = Machine(case, node, controller)
    at.say(case.lock)
    for kernel in case.kernels:
        at.say(f"mkdir -p /lib/modules/{kernel}; touch /lib/modules/{kernel}/modules.order /boot/vmlinuz-{kernel}")
    yield at
    site.remove(case.system)


def test_a_driver_comes_changes_goes_back_and_goes(machine: Machine) -> None:
    case = machine.case
    packages, settings, locks = machine.packages(), machine.settings(), machine.locks()

    machine.apply(case.old)
    machine.assert_has(case.old)
    assert machine.controller.plan_items(machine.node.name) == []

    machine.declare(case.new)
    machine.call("stage", "--limit", machine.node.name)
    machine.assert_has(case.old)
    with_sources_gone(machine)
    machine.assert_has(case.new)
    assert machine.builds() == [driver.version for driver in (case.old, case.new) if case.is_built]

    said = machine.change("rollback", machine.node.name)
    assert f"{case.new.version} → {case.old.version}" in said
    machine.assert_has(case.old)
    assert len(machine.builds()) == 2 * case.is_built

    assert "1 removed" in machine.change("remove", "--driver", "--limit", machine.node.name)
    assert machine.packages() == packages
    assert machine.settings() == settings
    assert machine.locks() == locks
    assert machine.say(f"ls -d {HOME} /sys/module/nvidia 2>/dev/null || :") == ""


def with_sources_gone(machine: Machine) -> None:
    """Swap the staged driver in while the package sources are empty."""
    machine.say(f"mount -t tmpfs none {machine.SOURCES}")
    try:
        machine.apply_staged()
    finally:
        machine.say(f"umount {machine.SOURCES}")
