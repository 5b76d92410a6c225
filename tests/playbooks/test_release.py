"""Whether a machine becomes another release, and which release its packages are kept at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.packages.release import (
    read_release_lock,
    read_release_upgrade,
)

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

NOBLE = 'ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n'
SOURCES, LIST = "/etc/apt/sources.list.d/ubuntu.sources", "/etc/apt/sources.list"
# Ubuntu's own file, as do-release-upgrade writes it for the next release.
DEB822 = """\
Types: deb
URIs: http://archive.ubuntu.com/ubuntu/
Suites: {0} {0}-updates {0}-backports
Components: main universe restricted multiverse
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg

Types: deb
URIs: http://security.ubuntu.com/ubuntu/
Suites: {0}-security
Components: main universe restricted multiverse
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg
"""
ONE_LINE = "# deb http://x {0} main\ndeb [arch=amd64] http://x {1} main\ndeb http://x {1}-updates main\n"
OLD = ONE_LINE.format("x", "jammy")
FOLDED = DEB822.replace("Suites: ", "Suites:\n ").format("noble")

UPGRADES: dict[str, tuple[dict[str, str], str | None]] = {
    "the release's own": ({SOURCES: DEB822.format("noble")}, None),
    "the next one's": ({SOURCES: DEB822.format("resolute")}, SOURCES),
    "the next one's, line by line": ({LIST: ONE_LINE.format("noble", "resolute")}, LIST),
    "both, the next one's for a few packages": (
        {LIST: ONE_LINE.format("x", "noble"), SOURCES: DEB822.format("resolute")},
        None,
    ),
    "the release's by a name that moves": ({LIST: ONE_LINE.format("x", "stable")}, None),
    "a repository without releases": ({LIST: "deb file:/srv/bundle ./\n"}, None),
    "another product's": ({LIST: "deb https://download.docker.com/linux/ubuntu jammy stable\n"}, None),
    "another release's, which apt is told to leave out": (
        {LIST: "deb file:/srv/bundle ./\n", SOURCES: DEB822.format("jammy").replace("Types", "Enabled: no\nTypes")},
        None,
    ),
    "a file whose name apt does not read": ({"/etc/apt/sources.list.d/before the upgrade.list": OLD}, None),
    "the release's own on a line of its own": ({SOURCES: FOLDED, LIST: OLD}, None),
    "Leapp's kernel": ({"/boot/vmlinuz-upgrade.x86_64": ""}, "/boot/vmlinuz-upgrade.x86_64"),
    "none": ({}, None),
}


@pytest.mark.parametrize(("files", "expected"), UPGRADES.values(), ids=UPGRADES)
def test_an_upgrade_to_another_release_is_known_by_its_files(
    files: dict[str, str], expected: str | None, machine: Machine
) -> None:
    machine.write("/etc/os-release", NOBLE)
    for path, text in files.items():
        machine.write(path, text)

    assert read_release_upgrade(machine.host) == expected


def test_what_the_next_boot_carries_out_is_an_upgrade(machine: Machine) -> None:
    (machine.root / "system-update").symlink_to("/var/lib/dnf/system-upgrade")

    assert read_release_upgrade(machine.host) == "/system-update"


LOCKS: dict[str, tuple[str, dict[str, str], str | None]] = {
    "RHEL, by its subscription": ("rhel", {"/var/lib/rhsm/cache/releasever.json": '{"releaseVer": "9.4"}'}, "9.4"),
    "RHEL, without": ("rhel", {"/var/lib/rhsm/cache/releasever.json": '{"releaseVer": null}'}, None),
    "RHEL of a cloud": ("rhel", {"/etc/yum/vars/releasever": "8.10\n"}, "8.10"),
    "Rocky Linux, by its major release": ("rocky", {"/etc/dnf/vars/releasever": "9\n"}, None),
    "Amazon Linux, by itself": ("amzn", {}, "2023.0.20230210"),
    "Amazon Linux, the newest": ("amzn", {"/etc/dnf/vars/releasever": "latest\n"}, None),
    "Amazon Linux, a later one": ("amzn", {"/etc/dnf/vars/releasever": "2023.9.20251117\n"}, "2023.9.20251117"),
    "a file that is nested too deep": ("rhel", {"/var/lib/rhsm/cache/releasever.json": "[" * 200_000}, None),
    "a file that is none": ("rhel", {"/var/lib/rhsm/cache/releasever.json": '["9.4'}, None),
}


@pytest.mark.parametrize(("identity", "files", "expected"), LOCKS.values(), ids=LOCKS)
def test_a_locked_release_is_named(
    identity: str, files: dict[str, str], expected: str | None, machine: Machine
) -> None:
    machine.write("/etc/os-release", f'ID="{identity}"\nVERSION_ID="9"\n')
    machine.teach("rpm -q --queryformat %{VERSION} system-release", "2023.0.20230210")
    for path, text in files.items():
        machine.write(path, text)

    assert read_release_lock(machine.host) == expected
