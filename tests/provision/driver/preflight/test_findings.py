"""What is found before a driver change: nothing where all is well, and all codes by the tables of the other files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.driver import (
    BuildTools,
    DriverRun,
    DriverState,
    ForeignDriver,
    Initramfs,
    Nouveau,
    StagedChange,
    Unattended,
)
from provision.declaration.fleet.facts.node import AvailablePackage, Installation
from provision.planning.driver.preflight import CODES, Severity, findings
from provision.planning.driver_change import ChangedFile, DriverChange, PackageVersion, change_id
from tests.provision.driver.preflight.situations import (
    ENFORCED,
    NEW,
    NEXT,
    OLD,
    RUNNING,
    SIGNED,
    SOURCE,
    declare,
    found,
    make_change,
    make_node,
    with_packages,
    without_headers,
)
from tests.provision.driver.preflight.test_kernel_findings import KERNELS
from tests.provision.driver.preflight.test_other_findings import OTHERS
from tests.provision.driver.preflight.test_package_findings import PACKAGES
from tests.provision.driver.preflight.test_signature_findings import SIGNATURES
from tests.provision.samples import GPU, make_facts, replace

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts


def test_a_node_that_is_ready_has_no_findings() -> None:
    assert findings(make_node(), declare(), make_change()) == ()


def test_a_node_that_says_nothing_of_all_this_has_no_findings() -> None:
    assert findings(make_facts(gpus=(GPU,)), declare(), make_change()) == ()


def test_a_driver_that_is_not_managed_is_nobodys_business() -> None:
    facts = make_node(foreign_driver=ForeignDriver(kind="runfile"), nouveau=Nouveau(loaded=True))

    assert findings(facts, declare(enabled=False), None) == ()


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
