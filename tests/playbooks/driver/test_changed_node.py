"""A booted node that somebody has changed: a library alone, dpkg's database, the order of modules, another kernel.

Each test begins with the older driver in service, and ends with either driver, verified, once the cause is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.playbooks.driver.driven_node import PackagedNode, driven_node
from tests.playbooks.staging.small_driver import NEW, OLD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.playbooks.driver.driven_node import DrivenNode

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(500)]  # the setup boots a node

STATUS = "/var/lib/dpkg/status"
UPGRADE_LIBRARY = f"dpkg --force-depends --install /srv/extra/liblab_{NEW}_amd64.deb 2>/dev/null"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenNode]:
    with driven_node(PackagedNode, "changed", tmp_path_factory.mktemp("driver")) as made:
        yield made


@pytest.fixture
def node(installed: DrivenNode) -> Iterator[DrivenNode]:
    """The node with the older driver in service, before the test and after it."""
    installed.assert_has(OLD)
    yield installed
    installed.sh("rm -rf /run/gpusim/fail /usr/bin/nvidia-smi")
    record = installed.swap(installed.prepare(OLD))
    assert (record["state"], record["reason"]) == ("done", "")
    installed.assert_has(OLD)


def test_another_module_that_comes_first_is_named(node: DrivenNode) -> None:
    """Somebody has put a module where depmod looks first: the change goes back before that is loaded."""
    identifier, kernel = node.prepare(NEW), node.node.kernel_release
    place = f"/lib/modules/{kernel}/somebody"
    node.sh(
        f"mkdir {place}; cp $(modinfo --field filename nvidia) {place}/; "
        "echo search somebody extra built-in > /etc/depmod.d/0-somebody.conf"
    )

    refused = node.swap(identifier)
    node.sh(f"rm -r {place} /etc/depmod.d/0-somebody.conf; depmod {kernel}")
    node.assert_has(OLD)
    after = node.swap(identifier)

    assert refused["state"] == "returned", refused["reason"]
    assert f"kernel {kernel} lacks the module {NEW} (proprietary) on disk, it has {OLD}" in refused["reason"]
    assert (after["state"], after["reason"]) == ("done", "")
    node.assert_has(NEW)


def test_a_library_that_is_upgraded_alone_after_staging_is_completed_by_the_swap(node: DrivenNode) -> None:
    """The classic mismatch: programs find a library of another version than the loaded module."""
    identifier = node.prepare(NEW)
    node.sh(UPGRADE_LIBRARY)
    mixed = node.call("verify")["differences"]

    record = node.swap(identifier)

    assert f"libcuda.so.1 is {NEW}, not {OLD}" in mixed
    assert (record["state"], record["reason"]) == ("done", "")
    node.assert_has(NEW)


def test_a_library_that_is_upgraded_alone_is_put_back_by_the_way_back(node: DrivenNode) -> None:
    """The set was staged before, so it leads back to what was whole."""
    identifier = node.prepare(NEW)
    node.sh(UPGRADE_LIBRARY)
    node.break_smi()

    record = node.swap(identifier)

    assert record["state"] == "returned", record["reason"]
    node.assert_has(OLD)


@pytest.mark.parametrize("wanted", [OLD, NEW])
def test_a_library_that_was_upgraded_alone_before_staging_is_made_good(node: DrivenNode, wanted: str) -> None:
    """The other half is held at the older version, and apt knows no way out by itself."""
    node.sh(UPGRADE_LIBRARY)
    assert node.sh("apt-mark showhold").split() == ["nvidia-lab-modules"]

    record = node.swap(node.prepare(wanted))

    assert (record["state"], record["reason"]) == ("done", "")
    node.assert_has(wanted)


def test_a_package_that_somebody_holds_changes_and_stays_held(node: DrivenNode) -> None:
    """Without `hold` the change leaves holds as they are: half of the driver is held, and still changes as a whole."""
    node.sh("apt-mark unhold nvidia-lab-modules")
    identifier = node.prepare(NEW, hold=False)

    record = node.swap(identifier)
    held = node.sh("apt-mark showhold").split()
    versions = node.sh("dpkg-query -W -f '${Version} ' liblab nvidia-lab-modules").split()
    back = node.back()
    held_back = node.sh("apt-mark showhold").split()
    node.sh("apt-mark hold nvidia-lab-modules")

    assert (record["state"], record["reason"], back["state"], back["reason"]) == ("done", "", "done", "")
    assert versions == [NEW, NEW]
    assert (held, held_back) == (["liblab"], ["liblab"])
    node.assert_has(OLD)


DAMAGES = {
    "emptied": f"truncate -s 0 {STATUS}",
    "cut off in the middle": f"truncate -s $(($(stat -c %s {STATUS}) / 2)) {STATUS}",
    "a block of zeros": f"at=$(grep -abo '^Status: install' {STATUS} | awk -F: '$1 > 32768 {{ print $1 + 10; exit }}')"
    f"; dd if=/dev/zero of={STATUS} bs=4096 seek=$at oflag=seek_bytes count=1 conv=notrunc 2>/dev/null",
    "garbage": f"sed -i s/^Package:/Pack:age/ {STATUS}",
    "gone": f"rm {STATUS}",
    "what apt does not mind": f"sed -i '0,/^Maintainer: .*/s//&\\n&/' {STATUS}",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_database_is_refused_and_nothing_is_disturbed(node: DrivenNode, damage: str) -> None:
    identifier, loaded = node.prepare(NEW), "stat -c %Z /sys/module/nvidia/version; systemctl show -p MainPID {service}"
    before = node.sh(loaded.format(service="nvidia-persistenced"))
    node.sh(f"cp -a {STATUS} /srv/status; {damage}")

    refused = node.swap(identifier)
    staged = node.call("stage", given=node.change(NEW, hold=False))
    after = node.sh(loaded.format(service="nvidia-persistenced"))
    node.sh(f"cp -a /srv/status {STATUS}")
    node.assert_has(OLD)
    again = node.swap(identifier)

    assert refused["state"] == "failed", refused["reason"]
    assert "damaged" in refused["reason"], refused
    assert not staged["complete"], staged
    assert [one["code"] for one in staged["findings"]] == ["packages-unreadable"], staged
    assert after == before
    assert (again["state"], again["reason"]) == ("done", "")
    node.assert_has(NEW)


def test_a_kernel_that_was_installed_meanwhile_is_refused(node: DrivenNode) -> None:
    identifier = node.prepare(NEW)
    node.sh("mkdir -p /lib/modules/9.9.9-amd64; touch /boot/vmlinuz-9.9.9-amd64")

    refused = node.swap(identifier)
    node.sh("rm -r /lib/modules/9.9.9-amd64 /boot/vmlinuz-9.9.9-amd64")
    node.assert_has(OLD)
    after = node.swap(identifier)

    assert refused["state"] == "failed", refused["reason"]
    assert refused["reason"].startswith("kernel-not-staged: the kernel 9.9.9-amd64 was installed after")
    assert (after["state"], after["reason"]) == ("done", "")
