"""What transactions make of the answers of dnf and zypper, without a node: nothing is done that was not asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.transaction import Dnf
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Rehearsal, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.transaction import Zypper

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

FILE = "/staged/nvidia-driver-cuda.rpm"
DESCRIBED = "nvidia-driver-cuda\t3\t580.95.05\t1.el9\tx86_64\tnvidia-driver-580.95.05-1.el9.src.rpm\n"
OLD = "kmod-nvidia-open-dkms\t3\t580.95.05\t1.el9\tx86_64\tkmod.src.rpm\t1700000000\t7\n"
TABLE = """\
Installing:
 nvidia-driver-cuda
                          x86_64  3:580.95.05-1.el9  @commandline   6.9 k
Removing:
 kmod-nvidia-open-dkms    x86_64  3:580.95.05-1.el9  @@commandline   68  \n"""
MORE = " gcc                      x86_64  11.5-1.el9         @base          0  \n"


def teach(machine: Machine, table: str) -> Transaction:
    machine.teach("rpm --query --package", lambda: Finished(0, DESCRIBED))
    machine.teach("rpm --query", lambda: Finished(0, OLD))
    machine.teach("dnf", lambda: Finished(0, table))
    return Transaction((FILE,), ("kmod-nvidia-open-dkms",), "/scratch")


def test_a_row_on_two_lines_and_a_size_without_unit_are_read(machine: Machine) -> None:
    transaction = teach(machine, TABLE)
    wanted = Rehearsal({"nvidia-driver-cuda": "3:580.95.05-1.el9"}, ("kmod-nvidia-open-dkms",))
    assert Dnf().rehearse(machine.host, transaction) == wanted


def test_what_a_new_package_takes_the_place_of_is_told_apart(machine: Machine) -> None:
    """A driver may do so; an engine must not take away what others run with."""
    transaction = teach(machine, TABLE.replace("6.9 k\n", "6.9 k\n     replacing  runc.x86_64 4:1.3.6-1.el9\n"))
    found = Dnf().rehearse(machine.host, transaction)
    assert (found.remove, found.obsoleted) == (("kmod-nvidia-open-dkms",), ("runc",))


def test_what_would_remove_more_than_was_asked_for_is_not_begun(machine: Machine) -> None:
    transaction = teach(machine, TABLE + MORE)
    with pytest.raises(PackageError, match="would also remove gcc") as raised:
        Dnf().apply(machine.host, transaction, Clock())
    assert raised.value.is_unchanged
    assert not [call for call in machine.calls if "--assumeyes" in call]


def test_a_missing_plugin_is_named_with_its_package(machine: Machine) -> None:
    machine.teach("rpm --query", lambda: Finished(0, OLD))
    with pytest.raises(PackageError, match="install python3-dnf-plugin-versionlock"):
        Dnf().hold(machine.host, ["nvidia-driver-cuda"])


def test_a_damaged_database_is_no_empty_one(machine: Machine) -> None:
    machine.teach("rpm --query", lambda: Finished(0, "", "error: rpmdbNextIterator: skipping h# 12: bad signature"))
    with pytest.raises(PackageError, match="rpm --rebuilddb"):
        Dnf().is_interrupted(machine.host)


def test_locks_change_without_a_repository_that_answers(machine: Machine) -> None:
    """They change while the GPUs are out of service, and nothing of a repository is needed for them."""
    machine.teach("zypper")

    Zypper().unhold(machine.host, ["nvidia-compute-G06"])

    (call,) = machine.calls
    assert "--no-refresh" in call.split()[: call.split().index("removelock")]
