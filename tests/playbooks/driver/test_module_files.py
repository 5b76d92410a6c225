"""The module of a set replaces the one on the disk that is another, half of one, or signed by somebody else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import Signing
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.trust import Signer, write_signers
from ansible_collections.grapnel.node.plugins.module_utils.driver.module_files import ModuleFileError, install_modules
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished

from tests.playbooks.driver.conftest import NEW, make_change
from tests.playbooks.driver.machines import KERNEL

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

SET = "/var/lib/grapnel/driver/staged/0123456789ab"
ARCHIVE = f"{SET}/modules/{KERNEL}.tar.gz"
FILE = f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
DECLARED = Signing("/etc/keys/site.key", "/etc/keys/site.der")


class Disk:
    """The module on the disk, and the one of the archive, which dkms installs once it has loaded that."""

    def __init__(self, machine: Machine, found: str, archive: str) -> None:
        self.found, self.built, self.archive = found, found, archive
        machine.teach("modprobe --show-depends", f"insmod {FILE}\n")
        machine.teach("modinfo", lambda: Finished(0 if self.found else 1, self.found, ""))
        machine.teach("dkms ldtarball", self._load)
        machine.teach("dkms status", "nvidia-current: built\n")
        machine.teach("dkms install", self._install)

    def _load(self) -> Finished:
        self.built = self.archive
        return Finished(0)

    def _install(self) -> Finished:
        self.found = self.built
        return Finished(0)


def describe(signer: str = "", version: str = NEW) -> str:
    return f"version: {version}\nlicense: NVIDIA\n" + (f"signer: {signer}\n" if signer else "")


def make_target(machine: Machine, sign: Signing | None) -> Target:
    machine.write(f"{SET}/change.json")
    write_signers(machine.host, SET, {KERNEL: [Signer("Site")]})
    return Target(replace(make_change(NEW), sign=sign), SET, (), {KERNEL: ARCHIVE})


@pytest.mark.parametrize(
    ("found", "sign", "installed"),
    [
        pytest.param("", None, [KERNEL], id="half of a module that a power cut left where dkms builds"),
        pytest.param(describe("Site"), DECLARED, [], id="signed by the declared key"),
        pytest.param(describe("DKMS"), DECLARED, [KERNEL], id="signed by another key than the declared one"),
        pytest.param(describe(), DECLARED, [KERNEL], id="not signed"),
        pytest.param(describe("DKMS"), None, [], id="signed by whoever, and no key is declared"),
    ],
)
def test_the_module_of_the_archive_replaces_what_will_not_do(
    machine: Machine, found: str, sign: Signing | None, installed: list[str]
) -> None:
    disk = Disk(machine, found, describe("Site"))

    assert install_modules(machine.host, make_target(machine, sign)) == installed

    assert disk.found == (describe("Site") if installed else found)


def test_a_signer_that_is_not_the_declared_one_is_named(machine: Machine) -> None:
    Disk(machine, describe("DKMS"), describe("Stranger"))

    with pytest.raises(
        ModuleFileError, match=f"lacks the module {NEW} signed by Site on disk, it has that of Stranger"
    ):
        install_modules(machine.host, make_target(machine, DECLARED))


def test_a_module_has_the_label_of_its_folder_before_it_is_loaded(machine: Machine) -> None:
    """A kernel that unpacks modules itself asks for the file's label, and loads none with that of another folder."""
    Disk(machine, "", describe())
    machine.write("/sys/fs/selinux/enforce", "1")
    machine.write("/usr/sbin/restorecon", mode=0o755)
    machine.write(FILE)
    machine.teach("restorecon -R -F")

    install_modules(machine.host, make_target(machine, None))

    folder = FILE.rpartition("/")[0]
    assert f"restorecon -R -F {folder}" in machine.calls
    machine.teach("restorecon -R -F", return_code=1, stderr=f"restorecon: Could not set context for {FILE}\n")
    Disk(machine, "", describe())
    with pytest.raises(ModuleFileError, match=r"restorecon -R -F failed: .*Could not set context"):
        install_modules(machine.host, make_target(machine, None))
