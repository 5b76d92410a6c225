"""What is found before a driver change: each rule by a node that has the trouble and one that nearly has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.driver.preflight import CODES, Severity, findings
from provision.driver_change import ChangedFile, DriverChange, ModuleTarget, PackageVersion, Signing, change_id
from provision.fleet.driver_facts import (
    BuildTools,
    DkmsBuild,
    DriverRun,
    DriverState,
    ForeignDriver,
    Initramfs,
    Kernel,
    ModuleFile,
    Nouveau,
    SecureBoot,
    StagedChange,
    Unattended,
)
from provision.fleet.facts import AvailablePackage, DeviceHolder, Installation, InstalledPackage, LockHolder
from provision.spec.model import Driver
from tests.provision.samples import GPU, edit_package_manager, make_facts, make_module, replace

if TYPE_CHECKING:
    from provision.driver.preflight import Finding
    from provision.fleet.facts import NodeFacts

NEW, OLD = "550.163.01", "535.261.03"
RUNNING = Kernel(release="6.12.107+deb13-amd64", running=True, default=True, headers=True)
NEXT = Kernel(release="6.12.117+deb13-amd64", headers=True)
SOURCE = "nvidia-graphics-drivers"
TOOLS = BuildTools(dkms="3.2.2", gcc=True, make=True)
SIGNED = ModuleFile(version=NEW, flavour="proprietary", signer="DKMS module signing key")
ENFORCED = SecureBoot(enabled=True, enforced=True, lockdown="integrity", enrolled=("Debian Secure Boot CA",))
ROOM = 10_000_000_000


def make_change(**changes: object) -> DriverChange:
    change = DriverChange(
        version=NEW,
        flavour="proprietary",
        manager="apt",
        packages=(PackageVersion("libcuda1", f"{NEW}-2"), PackageVersion("nvidia-kernel-dkms", f"{NEW}-2")),
        kernels=(RUNNING.release, NEXT.release),
        dkms="nvidia-current",
        module=ModuleTarget(version=NEW),
    )
    return replace(change, **changes)


def make_node(**changes: object) -> NodeFacts:
    """Return the facts of a node with a GPU that has everything a change needs."""
    usual = {
        "gpus": (GPU,),
        "kernels": (replace(RUNNING, default=True), NEXT),
        "build_tools": TOOLS,
        "secure_boot": SecureBoot(enabled=False, enrolled=(), lockdown="none"),
        "nouveau": Nouveau(blacklisted=True),
        "initramfs": Initramfs(tool="initramfs-tools"),
        "disk_free": {"/": ROOM, "/var": ROOM, "/usr": ROOM, "/boot": ROOM, "/tmp": ROOM},
    }
    return make_facts(**(usual | changes))


def declare(**changes: object) -> Driver:
    return replace(Driver(version=NEW), **changes)


def found(facts: NodeFacts, change: DriverChange | None = None, driver: Driver | None = None) -> dict[str, Finding]:
    return {one.code: one for one in findings(facts, driver or declare(), change)}


def with_packages(version: str, **changes: object) -> NodeFacts:
    package = replace(InstalledPackage(version=version, source=SOURCE), **changes)
    return make_node(packages={"libcuda1": package}, module=make_module(None, None))


def test_a_node_that_is_ready_has_no_findings() -> None:
    assert findings(make_node(), declare(), make_change()) == ()


def test_a_node_that_says_nothing_of_all_this_has_no_findings() -> None:
    assert findings(make_facts(gpus=(GPU,)), declare(), make_change()) == ()


def test_a_driver_that_is_not_managed_is_nobodys_business() -> None:
    facts = make_node(foreign_driver=ForeignDriver(kind="runfile"), nouveau=Nouveau(loaded=True))

    assert findings(facts, declare(enabled=False), None) == ()


def without_headers(kernel: Kernel) -> Kernel:
    return replace(kernel, headers=False)


KERNELS = {
    "no headers for the running kernel": (
        make_node(kernels=(without_headers(RUNNING), NEXT)),
        make_change(),
        "kernel-headers-missing",
        f"kernel headers are missing for {RUNNING.release}",
    ),
    "no headers for the kernel that boots by default": (
        make_node(kernels=(replace(RUNNING, default=False), replace(without_headers(NEXT), default=True))),
        make_change(),
        "kernel-headers-missing",
        f"kernel headers are missing for {NEXT.release}",
    ),
    "a prebuilt module for another kernel": (
        make_node(),
        make_change(
            dkms=None,
            packages=(PackageVersion(f"linux-modules-nvidia-550-{NEXT.release}", "6.12"),),
        ),
        "module-package-missing",
        f"there is no prebuilt module for {RUNNING.release}",
    ),
    "a change that leaves out the running kernel": (
        make_node(),
        make_change(kernels=(NEXT.release,)),
        "kernel-module-missing",
        f"{RUNNING.release} runs, and has no kernel module {NEW}",
    ),
    "a change that leaves out an installed kernel": (
        make_node(),
        make_change(kernels=(RUNNING.release,)),
        "kernel-module-missing-next-boot",
        f"{NEXT.release} may boot next without kernel module {NEW}",
    ),
    "another kernel boots next": (
        make_node(kernels=(replace(RUNNING, default=False), replace(NEXT, default=True))),
        make_change(),
        "other-kernel-next-boot",
        f"{RUNNING.release} runs, and the next boot starts {NEXT.release}",
    ),
    "no compiler": (
        make_node(build_tools=replace(TOOLS, gcc=False)),
        make_change(),
        "build-tools-missing",
        "DKMS 3.2.2 has no gcc",
    ),
    "neither compiler nor make": (
        make_node(build_tools=replace(TOOLS, gcc=False, make=False)),
        make_change(),
        "build-tools-missing",
        "DKMS 3.2.2 has no gcc and no make",
    ),
    "DKMS is told not to build": (
        make_node(build_tools=replace(TOOLS, autoinstall=False)),
        make_change(),
        "dkms-autoinstall-off",
        "/etc/dkms/no-autoinstall keeps DKMS from building for new kernels",
    ),
    "a dkms.conf without AUTOINSTALL": (
        make_node(dkms=(DkmsBuild(module="nvidia-current", version=NEW, autoinstall=False),)),
        make_change(),
        "dkms-autoinstall-off",
        "dkms.conf of nvidia-current does not ask for builds for new kernels",
    ),
    "a build that failed": (
        make_node(dkms=(DkmsBuild(module="nvidia-current", version=NEW),)),
        make_change(),
        "dkms-not-installed",
        f"DKMS has nvidia-current {NEW}, which is added for {RUNNING.release}",
    ),
    "a build for another kernel only": (
        make_node(dkms=(DkmsBuild(module="nvidia", version=NEW, kernel=NEXT.release, state="installed"),)),
        None,
        "dkms-not-installed",
        f"DKMS has nvidia {NEW}, which is not built for {RUNNING.release}",
    ),
}


@pytest.mark.parametrize(("facts", "change", "code", "message"), KERNELS.values(), ids=KERNELS)
def test_kernels_and_modules(facts: NodeFacts, change: DriverChange | None, code: str, message: str) -> None:
    assert found(facts, change)[code].message == message


READY = {
    "headers that come with the change": (
        make_node(kernels=(without_headers(RUNNING), NEXT)),
        make_change(
            packages=(
                PackageVersion("libcuda1", f"{NEW}-2"),
                PackageVersion(f"linux-headers-{RUNNING.release}", "6.12.107-1"),
            )
        ),
    ),
    "no headers for a kernel that only somebody's hand would boot": (
        make_node(kernels=(RUNNING, without_headers(NEXT))),
        make_change(),
    ),
    "no headers, and the module is there": (
        make_node(kernels=(replace(without_headers(RUNNING), modules=(SIGNED,)), NEXT)),
        make_change(),
    ),
    "no headers, and everything is staged": (
        make_node(
            kernels=(without_headers(RUNNING), NEXT),
            driver=DriverState(staged=(StagedChange(id=change_id(make_change()), complete=True),)),
        ),
        make_change(),
    ),
    "no DKMS yet: the packages bring it": (
        make_node(build_tools=BuildTools(dkms=None)),
        make_change(),
    ),
    "modules that fit several kernels": (
        make_node(),
        make_change(dkms=None, packages=(PackageVersion("kmod-nvidia-open", "3:550.163.01-1.el9"),)),
    ),
    "user space alone, and the module is somebody else's": (
        make_node(kernels=(replace(RUNNING, modules=(SIGNED,)), replace(NEXT, modules=(SIGNED,)))),
        make_change(flavour="none", dkms=None, kernels=()),
    ),
    "a node without GPUs": (
        make_node(gpus=(), kernels=(without_headers(RUNNING),)),
        make_change(flavour="none", dkms=None, kernels=(), module=None),
    ),
    "secure boot, and the kernel has DKMS's certificate": (
        make_node(secure_boot=replace(ENFORCED, enrolled=("n1: DKMS module signing key: 0a1b",))),
        make_change(),
    ),
    "secure boot, and a module that the distribution signed": (
        make_node(secure_boot=ENFORCED),
        make_change(dkms=None, packages=(PackageVersion("nvidia-signed", "550"),)),
    ),
    "nouveau is kept out by the change": (
        make_node(nouveau=Nouveau(), kernels=(replace(RUNNING, modules=(SIGNED,)), NEXT)),
        make_change(files=(ChangedFile("/etc/modprobe.d/grapnel-nvidia.conf", "blacklist nouveau\n"),)),
    ),
    "a hold at the wanted version": (with_packages(f"{NEW}-2", hold=True), make_change()),
    "a hold that is grapnel's own": (
        replace(
            with_packages(f"{OLD}-1", hold=True),
            installed={"node": Installation(digest="b2" * 32)},
            available={"libcuda1": (AvailablePackage(version=f"{OLD}-1", source=SOURCE),)},
        ),
        make_change(),
    ),
    "unattended upgrades, and the driver is held": (
        make_node(unattended=Unattended(unit="apt-daily-upgrade.timer", active=True)),
        make_change(),
    ),
    "a driver change that went well": (
        make_node(driver=DriverState(run=DriverRun(state="done", verb="swap"))),
        make_change(),
    ),
}


@pytest.mark.parametrize(("facts", "change"), READY.values(), ids=READY)
def test_what_is_no_trouble_is_not_found(facts: NodeFacts, change: DriverChange) -> None:
    assert findings(facts, declare(), change) == ()


SIGNATURES = {
    "DKMS signs with a key that nobody enrolled": (
        make_node(secure_boot=ENFORCED),
        make_change(),
        "signing-key-not-enrolled",
        "the kernel does not have the certificate 'DKMS module signing key'",
    ),
    "the module that is there is signed by a stranger": (
        make_node(secure_boot=ENFORCED, kernels=(replace(RUNNING, modules=(replace(SIGNED, signer="lab"),)), NEXT)),
        make_change(),
        "signing-key-not-enrolled",
        "the kernel does not have the certificate 'lab'",
    ),
    "the module that is there is not signed": (
        make_node(secure_boot=ENFORCED, kernels=(replace(RUNNING, modules=(replace(SIGNED, signer=None),)), NEXT)),
        make_change(),
        "module-unsigned",
        f"kernel module {NEW} is there and not signed",
    ),
    "a DKMS that does not sign": (
        make_node(secure_boot=ENFORCED, build_tools=replace(TOOLS, dkms="2.8.4")),
        make_change(),
        "module-unsigned",
        "DKMS 2.8.4 does not sign what it builds",
    ),
    "no secure boot, and a kernel that insists on signatures": (
        make_node(secure_boot=SecureBoot(enabled=False, enforced=True, enrolled=())),
        make_change(),
        "signing-key-not-enrolled",
        "the kernel does not have the certificate 'DKMS module signing key'",
    ),
    "certificates that cannot be listed": (
        make_node(secure_boot=replace(ENFORCED, enrolled=None)),
        make_change(),
        "signature-unknown",
        "the kernel's certificates cannot be listed: it may not have 'DKMS module signing key'",
    ),
    "a key of the declaration's own": (
        make_node(secure_boot=ENFORCED),
        make_change(sign=Signing(key="/etc/keys/m.key", certificate="/etc/keys/m.der")),
        "signature-unknown",
        "whether the kernel has /etc/keys/m.der is found out while staging",
    ),
    "variables that cannot be read": (
        make_node(secure_boot=SecureBoot(enabled=None)),
        make_change(),
        "secure-boot-unknown",
        "the firmware's variables cannot be read: secure boot may be on",
    ),
}


@pytest.mark.parametrize(("facts", "change", "code", "message"), SIGNATURES.values(), ids=SIGNATURES)
def test_signatures(facts: NodeFacts, change: DriverChange, code: str, message: str) -> None:
    assert {code: found(facts, change)[code].message} == {
        one.code: one.message for one in found(facts, change).values()
    }
    assert found(facts, change)[code].message == message


SPACE = {
    "each on a file system of its own": (
        {"/": ROOM, "/var": 400_000_000, "/usr": ROOM + 1, "/boot": 90_000_000},
        ["/boot: 90 MB free, 100 MB needed", "/var: 400 MB free, 752 MB needed"],
    ),
    "one file system for all": (
        {"/": 1_300_000_000, "/var": 1_300_000_000, "/usr": 1_300_000_000, "/boot": 1_300_000_000},
        [],
    ),
    "one file system that is too small for all together": (
        {"/": 1_200_000_000, "/var": 1_200_000_000, "/usr": 1_200_000_000, "/boot": 1_200_000_000},
        ["/boot and /usr and /var: 1200 MB free, 1267 MB needed"],
    ),
}


@pytest.mark.parametrize(("free", "messages"), SPACE.values(), ids=SPACE)
def test_space(free: dict[str, int], messages: list[str]) -> None:
    seen = findings(make_node(disk_free=free), declare(), make_change())

    assert sorted(one.message for one in seen if one.code == "disk-space-low") == messages
    assert len(seen) == len(messages)


def test_a_staged_change_needs_less_space() -> None:
    staged = DriverState(staged=(StagedChange(id=change_id(make_change()), complete=True),))
    free = {"/var": 200_000_000, "/usr": ROOM}

    assert "disk-space-low" in found(make_node(disk_free=free), make_change())
    assert "disk-space-low" not in found(make_node(disk_free=free, driver=staged), make_change())


PACKAGES = {
    "a hold of somebody else": (
        with_packages(f"{OLD}-1", hold=True),
        make_change(),
        "package-held",
        "held at another version: libcuda1",
    ),
    "an old version that no source has": (
        replace(
            with_packages(f"{OLD}-9"),
            available={"libcuda1": (AvailablePackage(version=f"{OLD}-9", source=SOURCE, fetchable=False),)},
        ),
        make_change(),
        "no-way-back",
        "no source has the installed version of libcuda1",
    ),
    "an interrupted installation": (
        edit_package_manager(with_packages(f"{NEW}-2", status="half-configured"), interrupted=True),
        None,
        "package-manager-interrupted",
        "an installation with apt was interrupted: libcuda1",
    ),
    "somebody at work": (
        edit_package_manager(make_node(), locked_by=LockHolder(pid=7, command="apt-get")),
        None,
        "package-manager-locked",
        "apt is in use by apt-get",
    ),
    "sources out of reach": (
        edit_package_manager(make_node(), lists_error="Failed to fetch"),
        None,
        "package-lists-stale",
        "apt could not refresh its lists: Failed to fetch",
    ),
    "libraries of another version than the module": (
        replace(with_packages(f"{NEW}-2"), module=make_module(OLD, OLD)),
        None,
        "driver-library-mismatch",
        f"kernel module {OLD} is loaded, and the libraries are {NEW}",
    ),
}


@pytest.mark.parametrize(("facts", "change", "code", "message"), PACKAGES.values(), ids=PACKAGES)
def test_packages(facts: NodeFacts, change: DriverChange | None, code: str, message: str) -> None:
    assert found(facts, change)[code].message == message


@pytest.mark.parametrize(
    ("version", "libraries", "is_found"),
    [
        (NEW, {"nvidia-driver-cuda-libs": f"3:{NEW}-1.el9"}, False),
        (OLD, {"nvidia-driver-cuda-libs": f"3:{NEW}-1.el9"}, True),
        (OLD, {"libnvidia-compute-550-server": f"{NEW}-0ubuntu1"}, True),
        (NEW, {"nvidia-compute-G06": f"{NEW}-150600.1.1"}, False),
        (OLD, {"nvidia-persistenced": f"{NEW}-1"}, False),
        (OLD, {"libcuda1": ""}, False),
    ],
)
def test_module_and_libraries_are_compared_by_upstreams_version(
    version: str, libraries: dict[str, str], *, is_found: bool
) -> None:
    packages = {name: InstalledPackage(version=each, source=SOURCE) for name, each in libraries.items()}

    seen = found(make_node(packages=packages, module=make_module(version, version)))

    assert ("driver-library-mismatch" in seen) is is_found


OTHERS = {
    "nouveau has the GPUs": (
        make_node(nouveau=Nouveau(loaded=True, blacklisted=True)),
        ["nouveau-loaded"],
    ),
    "nouveau has the GPUs, and nothing can write an initramfs without it": (
        make_node(nouveau=Nouveau(loaded=True), initramfs=Initramfs(tool="none")),
        ["nouveau-loaded", "initramfs-tool-missing", "nouveau-not-blacklisted"],
    ),
    "nouveau may come back": (
        make_node(nouveau=Nouveau(), kernels=(replace(RUNNING, modules=(SIGNED,)), replace(NEXT, modules=(SIGNED,)))),
        ["nouveau-not-blacklisted"],
    ),
    "nouveau before the first installation: packages bring a blacklist": (make_node(nouveau=Nouveau()), []),
    "a driver of the installer": (
        make_node(foreign_driver=ForeignDriver(kind="runfile", uninstaller="/usr/bin/nvidia-uninstall")),
        ["foreign-driver"],
    ),
    "libraries of nobody": (
        make_node(foreign_driver=ForeignDriver(kind="files", files=("/usr/lib64/libcuda.so.550.54.15",))),
        ["foreign-driver"],
    ),
    "a change that was taken back": (
        make_node(driver=DriverState(run=DriverRun(state="returned", verb="swap", step="verify", reason="no GPU"))),
        ["last-change-failed"],
    ),
    "a change that waits for a reboot": (
        make_node(driver=DriverState(run=DriverRun(state="needs-reboot", verb="swap", reboot_due=True))),
        ["driver-change-waits"],
    ),
    "a change that goes on after a reboot": (
        make_node(driver=DriverState(run=DriverRun(state="needs-reboot", verb="swap"))),
        ["driver-change-waits"],
    ),
    "a change that is under way": (
        make_node(driver=DriverState(run=DriverRun(state="running", verb="swap", step="packages"))),
        ["driver-change-running"],
    ),
    "work on the GPUs, and services of the driver": (
        make_node(
            module=make_module(OLD, OLD),
            device_holders=(
                DeviceHolder(pid=7, command="train", pod_uid="1f0c"),
                DeviceHolder(pid=8, command="jupyter", unit="jupyter.service"),
                DeviceHolder(pid=9, command="nvidia-persiste", is_driver_service=True),
            ),
        ),
        ["gpu-in-use"],
    ),
}


@pytest.mark.parametrize(("facts", "expected"), OTHERS.values(), ids=OTHERS)
def test_others(facts: NodeFacts, expected: list[str]) -> None:
    assert [one.code for one in findings(facts, declare(), make_change())] == expected


def test_unattended_upgrades_matter_where_nothing_is_held() -> None:
    facts = make_node(unattended=Unattended(unit="dnf-automatic.timer", active=True))
    asleep = make_node(unattended=Unattended(unit="dnf-automatic.timer", active=False))

    assert list(found(facts, make_change(), declare(hold=False))) == ["unattended-upgrade"]
    assert found(asleep, make_change(), declare(hold=False)) == {}


def test_users_are_named_with_what_they_are_and_driver_services_are_not() -> None:
    facts, _ = OTHERS["work on the GPUs, and services of the driver"]

    assert (
        found(facts, make_change())["gpu-in-use"].message
        == "GPUs are open in jupyter (jupyter.service), train in a pod"
    )


def test_errors_come_first() -> None:
    facts = make_node(
        nouveau=Nouveau(loaded=True),
        initramfs=Initramfs(tool="none"),
        foreign_driver=ForeignDriver(kind="runfile"),
        driver=DriverState(run=DriverRun(state="running")),
    )
    severities = [one.severity for one in findings(facts, declare(), make_change())]

    assert severities == sorted(severities, key=list(Severity).index)
    assert {Severity.ERROR, Severity.WARNING, Severity.INFO} == set(severities)


def test_no_text_names_the_node() -> None:
    """A thousand equal nodes are one block for whoever reads them."""
    tables = (KERNELS, SIGNATURES, PACKAGES)
    cases = [case[:2] for table in tables for case in table.values()] + [
        (each[0], make_change()) for each in OTHERS.values()
    ]

    for facts, change in cases:
        renamed = replace(facts, node=replace(facts.node, hostname="n2"))
        assert findings(facts, declare(), change) == findings(renamed, declare(), change)


def test_every_code_is_found_by_some_case() -> None:
    tables = (KERNELS, SIGNATURES, PACKAGES)
    cases = [case[:2] for table in tables for case in table.values()] + [
        (each[0], make_change()) for each in OTHERS.values()
    ]
    cases.append((make_node(disk_free={"/var": 1}), make_change()))
    seen = {one.code for facts, change in cases for one in findings(facts, declare(), change)}
    unattended = make_node(unattended=Unattended(unit="dnf-automatic.timer", active=True))
    seen |= set(found(unattended, None, declare(hold=False)))

    assert seen == {code.name for code in CODES}
