"""Packages that are in the way of others, and the space that they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.driver import (
    DriverState,
    StagedChange,
    Unattended,
)
from provision.declaration.fleet.facts.node import AvailablePackage, InstalledPackage, LockHolder
from provision.planning.driver.preflight import findings
from provision.planning.driver_change import DriverChange, change_id
from tests.provision.driver.preflight.situations import (
    NEW,
    OLD,
    ROOM,
    SOURCE,
    declare,
    found,
    make_change,
    make_node,
    with_packages,
)
from tests.provision.samples import edit_package_manager, make_module, replace

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

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


def test_unattended_upgrades_matter_where_nothing_is_held() -> None:
    facts = make_node(unattended=Unattended(unit="dnf-automatic.timer", active=True))
    asleep = make_node(unattended=Unattended(unit="dnf-automatic.timer", active=False))

    assert list(found(facts, make_change(), declare(hold=False))) == ["unattended-upgrade"]
    assert found(asleep, make_change(), declare(hold=False)) == {}
