"""A node with one driver, and a set for another one staged on it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from tests.playbooks.driver.machines import (
    DKMS,
    KERNEL,
    LIBRARIES,
    MODULES,
    OTHER_KERNEL,
    REVISION,
    SERVICE,
    FakeMachine,
    Package,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import RunRecord
    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import Node

    from tests.playbooks.driver.killing import Killer

OLD, NEW = "535.309.01", "550.163.01"
NAMES = ("libcuda1", "nvidia-kernel-dkms", "nvidia-persistenced")
MIG = {"GPU-0": ["9@0", "14@4"]}  # instances of a node that has a driver
SETTINGS = "/etc/modprobe.d/grapnel.conf"
NOT_ALLOWED = "only a reboot helps, and the declaration does not allow one: declare driver.reboot: true"


def make_change(version: str, **changes: object) -> DriverChange:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import (  # noqa: PLC0415 - see conftest
        ChangedFile,
        DriverChange,
        PackageVersion,
    )

    change = DriverChange(
        version=version,
        flavour="proprietary",
        manager="apt",
        packages=tuple(PackageVersion(name, f"{version}{REVISION}") for name in NAMES),
        remove=(),
        files=(ChangedFile(SETTINGS, f"# {version}\n", "0644"),),
        hold=True,
        kernels=(KERNEL,),
        dkms=DKMS,
        services=(SERVICE,),
        sign=None,
        compile="stage",
        reboot=False,
        module=version,
    )
    return replace(change, **changes)  # type: ignore[arg-type] # a test's own words


@dataclass
class Staged:
    """A machine, and the change that is staged on it."""

    machine: FakeMachine
    change: DriverChange
    id: str

    def node(self, killer: Killer | None = None) -> Node:
        from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import Node  # noqa: PLC0415 - see above
        from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.transaction import (  # noqa: PLC0415
            Apt,
        )

        def mknod(path: Path, *_: object) -> None:
            path.touch()

        return Node(self.machine.host(killer), Apt(), self.machine.clock(killer), mknod)

    def run(self, verb: str, killer: Killer | None = None) -> RunRecord:
        from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.actions import (  # noqa: PLC0415 - see above
            plan_work,
        )
        from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.run import carry_out  # noqa: PLC0415 - same

        node = self.node(killer)
        return carry_out(node, plan_work(node, verb, self.id if verb == "swap" else ""))

    def steps(self) -> list[tuple[str, str]]:
        """Return the journal of the last run, without the beginnings."""
        from ansible_collections.grapnel.node.plugins.module_utils.driver.record.journal import (  # noqa: PLC0415 - see above
            read_journal,
        )
        from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import (  # noqa: PLC0415 - same
            read_run,
        )

        host = self.machine.host()
        run = read_run(host)
        assert run is not None
        return [(each["step"], each["state"]) for each in read_journal(host, run.run) if each["state"] != "begin"]

    def details(self) -> list[str]:
        """Return what the journal of the last run says beside steps and states."""
        from ansible_collections.grapnel.node.plugins.module_utils.driver.status import (  # noqa: PLC0415 - see above
            read_status,
        )

        return [each["detail"] for each in read_status(self.machine.host())["steps"] if "detail" in each]

    def assert_has(self, version: str, *, held: bool) -> None:
        """Hold the machine to a driver of one version, whole, with nothing of a run left over."""
        machine = self.machine
        assert {name: one.version for name, one in machine.packages.items()} == (
            dict.fromkeys(NAMES, f"{version}{REVISION}") if version else {}
        )
        assert all(one.state == "installed" and one.held == held for one in machine.packages.values())
        assert set(machine.loaded.values()) == ({version} if version else set())
        assert (SERVICE in machine.running) == bool(version)
        if version:
            assert machine.mig == machine.cut
            assert {*machine.loaded} >= {"nvidia", "nvidia_uvm"}
            assert machine.on_disk[KERNEL][0] == version
            assert (machine.root / LIBRARIES / "libcuda.so.1").readlink().name == f"libcuda.so.{version}"
        assert not machine.has("/etc/dkms/no-autoinstall")
        assert not machine.has("/run/grapnel/kernel-module.json")
        assert machine.compiled == []


def put_driver(machine: FakeMachine, version: str, flavour: str = "proprietary") -> None:
    """Let the machine run a driver that somebody has installed."""
    for name in NAMES:
        machine.packages[name] = Package(f"{version}{REVISION}")
    machine._postinst("libcuda1", version)
    machine.on_disk[KERNEL] = (version, flavour)
    machine.loaded = dict.fromkeys(MODULES, version)
    machine.flavour_loaded = flavour
    machine.running = {SERVICE}
    machine.cut, machine.mig = MIG, {gpu: [*cuts] for gpu, cuts in MIG.items()}
    machine.show()


def stage(machine: FakeMachine, change: DriverChange, before: DriverChange | None = None) -> Staged:
    """Put a set on the machine as staging leaves it; without ``before`` there was no driver."""
    from ansible_collections.grapnel.node.plugins.module_utils.driver.before import way_back  # noqa: PLC0415 - see conftest
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import (  # noqa: PLC0415 - see conftest
        NO_DRIVER,
        change_id,
    )
    from ansible_collections.grapnel.node.plugins.module_utils.driver.judge import drift  # noqa: PLC0415 - see conftest
    from ansible_collections.grapnel.node.plugins.module_utils.driver.record import seal, store  # noqa: PLC0415 - same
    from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.transaction import (  # noqa: PLC0415 - same
        Apt,
    )

    host, identifier = machine.host(), change_id(change)
    store.open_store(host)
    folder = store.staged_folder(identifier)
    none = replace(
        change, version=NO_DRIVER, flavour="none", packages=(), remove=change.names, files=(), kernels=(), dkms=None,
        services=(), module=NO_DRIVER,
    )  # fmt: skip
    for place, each in ((folder, change), (store.before_folder(folder), before or none)):
        fill(machine, place, each)
    back = store.before_folder(folder)
    way_back.write_files(host, back, way_back.find_files(host, [file.path for file in change.files]))
    way_back.write_holds(host, back, [name for name, one in machine.packages.items() if one.held])
    found = drift.find_now(host, Apt().installed, {*change.names, *(before or none).names})
    machine.write(f"{folder}/{drift.FOUND}", json.dumps(found.document()))
    seal.seal(host, folder)
    machine.calls.clear()
    return Staged(machine, change, identifier)


def fill(machine: FakeMachine, folder: str, change: DriverChange) -> None:
    """Write packages and built modules of a set."""
    from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store  # noqa: PLC0415 - see conftest

    for one in change.packages:
        machine.write(f"{folder}/{store.PACKAGES}/{one.name}_{one.version}_amd64.deb", f"{one.name} {one.version}")
    for kernel in change.kernels:
        made = {"version": change.version, "kernel": kernel, "flavour": change.flavour}
        machine.write(store.module_archive(folder, kernel), json.dumps(made))
    machine.root.joinpath(folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    store.write_change(machine.host(), folder, change)


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


@pytest.fixture
def upgrade(fake: FakeMachine) -> Staged:
    """A node with the older driver, and the newer one staged."""
    put_driver(fake, OLD)
    return stage(fake, make_change(NEW), make_change(OLD, files=(), services=()))


@pytest.fixture
def first(fake: FakeMachine) -> Staged:
    """A node without a driver, and one staged."""
    return stage(fake, make_change(NEW))


def former() -> DriverChange:
    """Return the change to the driver that the nodes have before."""
    return make_change(OLD, files=(), services=())


def pin(machine: FakeMachine, *, again: bool = False) -> None:
    """Have the kernel count a use that no process stands for."""
    machine.pinned, machine.pins_again = {"nvidia"}, again
    machine.show()


@pytest.fixture
def allowed(fake: FakeMachine) -> Staged:
    """A node with the older driver, which may be rebooted for the newer one that is staged."""
    put_driver(fake, OLD)
    return stage(fake, make_change(NEW, reboot=True), former())


def hold_a_gpu(machine: FakeMachine) -> None:
    """Have a process keep a GPU open."""
    machine.write("proc/4711/comm", "train\n")
    machine.write("proc/4711/cgroup", "0::/system.slice/job.service\n")
    machine.write("proc/4711/maps")
    (machine.root / "proc/4711/fd").mkdir()
    (machine.root / "proc/4711/fd/3").symlink_to("/dev/nvidia0")


def boots_next(machine: FakeMachine, kernel: str) -> None:
    """Have the boot loader start a kernel."""
    for each in (KERNEL, OTHER_KERNEL):
        machine.write(f"boot/vmlinuz-{each}")
    machine.write("boot/grub/grub.cfg", f"linux /boot/vmlinuz-{kernel} root=/dev/sda1\n")
