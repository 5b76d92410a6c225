"""Trouble on a booted node: full disks, wherever something is written, and a module that the kernel refuses.

Each test begins with the older driver in service, and ends with either driver, verified, once the cause is gone.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.playbooks.driver.driven_node import HOME, PROGRAM, SETTINGS, TIMEOUT_S, PackagedNode, driven_node
from tests.playbooks.staging.small_driver import NEW, OLD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.playbooks.driver.driven_node import DrivenNode

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(500)]  # the setup boots a node

FILL = "cat /dev/zero > {folder}/somebody.log 2>/dev/null || :"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenNode]:
    with driven_node(PackagedNode, "trouble", tmp_path_factory.mktemp("driver")) as made:
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


@contextmanager
def full_disk(node: DrivenNode, folder: str, free_kib: int = 0) -> Iterator[None]:
    """Put a folder on a file system of its own, with little room; whatever becomes of the folder stays."""
    node.sh(
        f"mkdir -p /srv/full; size=$(($(du -sk {folder} | cut -f1) + 4096)); mode=$(stat -c %a {folder}); "
        f"mount -t tmpfs -o size=${{size}}k,mode=$mode tmpfs /srv/full; cp -a {folder}/. /srv/full; "
        f"mount --bind /srv/full {folder}; {FILL.format(folder=folder)}; "
        f"truncate -s -{free_kib}K {folder}/somebody.log"
    )
    try:
        yield
    finally:
        node.sh(
            f"umount {folder}; rm /srv/full/somebody.log; find {folder} -mindepth 1 -delete; "
            f"cp -a /srv/full/. {folder}; umount /srv/full"
        )


def test_a_disk_that_is_full_when_packages_are_unpacked_leads_back(node: DrivenNode) -> None:
    identifier = node.prepare(NEW)
    with full_disk(node, "/usr/lib/lab"):
        record = node.swap(identifier)
        node.assert_has(OLD)
    again = node.swap(identifier)

    assert record["state"] == "returned", record["reason"]
    assert record["reason"].startswith("packages: the disk is full: ")
    assert "No space left on device" in record["reason"]
    assert (again["state"], again["reason"]) == ("done", "")
    node.assert_has(NEW)


def test_a_full_disk_of_the_package_database_changes_nothing(node: DrivenNode) -> None:
    identifier = node.prepare(NEW)
    with full_disk(node, "/var/lib/dpkg"):
        record = node.swap(identifier)
        node.assert_has(OLD)
    again = node.swap(identifier)

    assert record["state"] == "returned", record["reason"]
    assert "the disk is full" in record["reason"]
    assert (again["state"], again["reason"]) == ("done", "")
    node.assert_has(NEW)


@pytest.mark.parametrize("free_kib", [16, 96, 192])
def test_a_disk_that_becomes_full_while_dpkg_notes_what_it_does_is_no_end(node: DrivenNode, free_kib: int) -> None:
    """How far dpkg comes, and back, is a matter of what it has to note: the node has what the record says."""
    identifier = node.prepare(NEW)
    with full_disk(node, "/var/lib/dpkg", free_kib):
        record = node.swap(identifier)
        if record["state"] == "quarantined":
            assert "the disk is full" in record["reason"]
        else:
            assert record["state"] in ("done", "returned"), record["reason"]
            node.assert_has({"done": NEW, "returned": OLD}[record["state"]])
    again = node.swap(identifier)

    assert (again["state"], again["reason"]) == ("done", "")
    node.assert_has(NEW)


def test_a_full_disk_of_settings_leads_back(node: DrivenNode) -> None:
    identifier = node.prepare(NEW, files=[{"path": SETTINGS, "content": "# more\n" * 9000, "mode": "0644"}])
    with full_disk(node, "/etc/modprobe.d"):
        record = node.swap(identifier)
        node.assert_has(OLD)

    assert record["state"] == "returned", record["reason"]
    assert record["reason"].startswith("files: "), record
    assert "No space left on device" in record["reason"]


def test_a_full_disk_of_the_store_is_refused_before_anything_is_disturbed(node: DrivenNode) -> None:
    identifier = node.prepare(NEW)
    with full_disk(node, HOME):
        done = node.node.run([PROGRAM, "swap", identifier], check=False, timeout_s=TIMEOUT_S)
        node.assert_has(OLD)

    assert done.returncode == 1
    assert f"no-space: {HOME} has no room" in done.stderr


def test_a_module_that_the_kernel_refuses_is_a_quarantine_that_ends_with_the_cause(node: DrivenNode) -> None:
    identifier = node.prepare(NEW)
    node.sh("mkdir -p /run/gpusim/fail; echo 129 > /run/gpusim/fail/nvidia")

    refused = node.swap(identifier)
    node.sh("rm -r /run/gpusim/fail")
    after = node.swap(identifier)

    assert refused["state"] == "quarantined", refused["reason"]
    assert "Key was rejected by service (it is not signed" in refused["reason"]
    assert "going back failed at back-load" in refused["reason"]
    assert (after["state"], after["reason"]) == ("done", "")
    node.assert_has(NEW)
