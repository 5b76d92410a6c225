"""Version locks of dnf: those of the driver come and go beside what an administrator has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf import version_locks
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.holds import dnf_holds
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

LIST = "/etc/dnf/plugins/versionlock.list"
CONF = "/etc/dnf/plugins/versionlock.conf"
OLD, NEW = "3:580.95.05-1.el9", "3:580.126.09-1.el9"
ADMINS = "\n# ask Ann before you change this\nbash-0:5.1.8-9.el9.*\n"
NAME = "nvidia-driver"


def driver(version: str, name: str = NAME) -> Rpm:
    epoch, _, rest = version.partition(":")
    number, _, release = rest.partition("-")
    return Rpm(name, epoch, number, release, "x86_64", f"{name}.src.rpm")


@pytest.fixture
def node(machine: Machine) -> Machine:
    machine.write(CONF, f"[main]\nenabled = 1\nlocklist = {LIST}\n")
    machine.write(LIST, ADMINS)
    return machine


def test_a_lock_has_the_form_that_dnf_writes() -> None:
    assert version_locks.entry(NAME, NEW) == "nvidia-driver-3:580.126.09-1.el9.*"
    assert version_locks.entry("nvidia-imex", "580.126.09-1") == "nvidia-imex-0:580.126.09-1.*"


def test_what_was_there_before_stays_and_comes_back_as_it_was(node: Machine) -> None:
    version_locks.lock(node.host, {NAME: OLD, f"{NAME}-cuda": OLD})
    assert node.read(LIST).startswith(ADMINS)
    assert dnf_holds(node.host)(driver(OLD))

    version_locks.unlock(node.host, {NAME, f"{NAME}-cuda"})
    assert node.read(LIST) == ADMINS


def test_an_upgrade_leaves_no_lock_of_the_version_before(node: Machine) -> None:
    version_locks.lock(node.host, {NAME: OLD, f"{NAME}-cuda": OLD})
    version_locks.lock(node.host, {NAME: NEW})

    assert "nvidia-driver-3:580.95.05" not in node.read(LIST)
    assert "nvidia-driver-cuda-3:580.95.05" in node.read(LIST), "it is another package"
    assert dnf_holds(node.host)(driver(NEW))


@pytest.mark.parametrize("by_hand", [f"{NAME}-{OLD}.*", "*nvidia*580.95*"], ids=["one version", "a pattern"])
def test_an_administrator_s_lock_of_the_driver_outlives_a_change_and_the_way_back(node: Machine, by_hand: str) -> None:
    before = f"{ADMINS}{by_hand}\n"
    node.write(LIST, before)
    version_locks.lock(node.host, {NAME: NEW})
    assert dnf_holds(node.host)(driver(NEW))
    assert not dnf_holds(node.host)(driver(OLD)), "grapnel's lock is of the other version"

    version_locks.lock(node.host, {NAME: OLD})
    assert dnf_holds(node.host)(driver(OLD))
    version_locks.unlock(node.host, {NAME})
    assert node.read(LIST) == before


def test_a_lock_that_only_somebody_else_has_is_taken_away_where_that_is_asked_for(node: Machine) -> None:
    node.write(LIST, f"{ADMINS}{NAME}-{OLD}.*\n")
    version_locks.unlock(node.host, {NAME})
    assert node.read(LIST) == ADMINS


def test_what_is_not_installed_can_be_locked(node: Machine) -> None:
    version_locks.lock(node.host, {NAME: OLD})
    assert version_locks.locked_names(node.host, {NAME, "bash", "nvidia"}) == {NAME, "bash"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "install python3-dnf-plugin-versionlock", id="no plugin"),
        pytest.param("[main]\nenabled = 0\n", "disables the version lock", id="disabled"),
        pytest.param("[main]\nenabled=1\nlocklist=/root/list\n", "names another list", id="another list"),
    ],
)
def test_a_lock_that_nobody_would_obey_is_refused(machine: Machine, text: str | None, said: str) -> None:
    if text is not None:
        machine.write(CONF, text)
    with pytest.raises(PackageError, match=said):
        version_locks.lock(machine.host, {NAME: NEW})
