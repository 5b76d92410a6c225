"""Whether the kernel insists on signatures, and which certificates it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.preflight.secure_boot import read_secure_boot

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

VARIABLES = "/sys/firmware/efi/efivars"
SECURE_BOOT = f"{VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM_OFF = f"{VARIABLES}/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"


def add_variable(machine: Machine, path: str, value: int) -> None:
    machine.write(path)
    (machine.root / path.lstrip("/")).write_bytes(bytes([6, 0, 0, 0, value]))


def test_a_machine_without_efi_has_no_secure_boot(machine: Machine) -> None:
    machine.write("/proc/keys", "0f02 I------ 1 perm 1f030000 0 0 keyring .builtin_trusted_keys: empty\n")

    assert read_secure_boot(machine.host) == {"enabled": False, "enforced": False, "enrolled": [], "lockdown": None}


@pytest.mark.parametrize(
    ("variables", "enabled"),
    [
        pytest.param({SECURE_BOOT: 1}, True, id="on"),
        pytest.param({SECURE_BOOT: 0}, False, id="off"),
        pytest.param({SECURE_BOOT: 1, SHIM_OFF: 1}, False, id="on, and shim does not validate"),
        pytest.param({SECURE_BOOT: 1, SHIM_OFF: 0}, True, id="on, and shim validates"),
        pytest.param({f"{VARIABLES}/BootOrder-8be4": 1}, False, id="a firmware without it"),
        pytest.param({}, None, id="variables that are not mounted"),
    ],
)
def test_secure_boot_is_what_the_firmware_says(
    variables: dict[str, int], machine: Machine, *, enabled: bool | None
) -> None:
    machine.root.joinpath("sys/firmware/efi/efivars").mkdir(parents=True)
    for path, value in variables.items():
        add_variable(machine, path, value)

    assert read_secure_boot(machine.host)["enabled"] is enabled


def test_certificates_are_those_of_the_kernel_and_of_shim(machine: Machine) -> None:
    add_variable(machine, SECURE_BOOT, 1)
    machine.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    machine.write(
        "/proc/keys",
        "0b3f1f27 I------ 1 perm 1f010000 0 0 asymmetri Debian Secure Boot CA: 6ccece7e4c6c: X509.rsa 5c6e []\n"
        "0f02bb11 I------ 1 perm 1f030000 0 0 keyring   .machine: 1\n",
    )
    machine.write("/usr/bin/mokutil", mode=0o755)
    machine.teach(
        "mokutil --list-enrolled", "[key 1]\n        Subject: CN=DKMS module signing key\n        Issuer: CN=x\n"
    )

    assert read_secure_boot(machine.host) == {
        "enabled": True,
        "enforced": True,
        "enrolled": ["Debian Secure Boot CA: 6ccece7e4c6c", "CN=DKMS module signing key"],
        "lockdown": "integrity",
    }


def test_certificates_that_are_too_many_are_not_told_without_the_last(machine: Machine) -> None:
    """Keys of users are in that file too: the owner's certificate was cut off, and said to be lacking."""
    machine.write("/sys/module/module/parameters/sig_enforce", "Y\n")
    line = "{:08x} I------ 1 perm 1f010001 0 0 asymmetri {}: X509.rsa 5c6e []\n"
    added = "".join(line.format(number, f"added {number}") for number in range(1000))
    machine.write("/proc/keys", added + line.format(1000, "Site: modules: 0a1b2c"))

    assert read_secure_boot(machine.host)["enrolled"] is None


def test_certificates_that_nobody_may_see_are_not_none(machine: Machine) -> None:
    add_variable(machine, SECURE_BOOT, 1)
    machine.write("/proc/keys", "1345 I--Q--- 2 perm 1f3f0000 0 65534 keyring _uid.0: empty\n")
    machine.write("/sys/module/module/parameters/sig_enforce", "Y\n")

    assert read_secure_boot(machine.host) == {"enabled": True, "enforced": True, "enrolled": None, "lockdown": None}
