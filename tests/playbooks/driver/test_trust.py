"""What the kernel would accept is told by its keys where they are known, and by names where they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.trust import (
    Signer,
    enforces_signatures,
    find_distrust,
    read_signers,
    write_signers,
)

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

KEYS = """\
0c26ffdd I------     1 perm 1f030000     0     0 asymmetri Debian Secure Boot CA: 6ccece7e4c6c0d1f6149f3dd27dfcc5cbb419ea1: X509.rsa cbb419ea1 []
1d0d3d5b I------     1 perm 1f030000     0     0 asymmetri Example Ltd: Site Operations: 0a1b2c: X509.rsa 0a1b2c []
"""  # noqa: E501 - as the kernel writes it
ENROLLED = """\
[key 1]
SHA1 Fingerprint: 11:22
Certificate:
    Data:
        Subject: CN = From the console
        X509v3 extensions:
            X509v3 Subject Key Identifier:\x20
                AB:CD:EF
"""
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.fixture
def enforcing(machine: Machine) -> Machine:
    machine.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    machine.write("/proc/keys", KEYS)
    return machine


@pytest.mark.parametrize(
    ("signer", "code"),
    [
        pytest.param(Signer("Site Operations", "0a1b2c"), None, id="the kernel has the key"),
        pytest.param(Signer("Site Operations"), None, id="the kernel has the name, and the key is not known"),
        pytest.param(Signer("Site Operations", "ffff"), "signing-key-not-enrolled", id="another key of the same name"),
        pytest.param(Signer("Stranger", "0a1b2c"), None, id="the key counts, not what the certificate is called"),
        pytest.param(Signer("Stranger"), "signing-key-not-enrolled", id="neither"),
        pytest.param(Signer(""), "module-unsigned", id="nobody"),
    ],
)
def test_a_signer_is_held_to_the_kernel_s_keys(enforcing: Machine, signer: Signer, code: str | None) -> None:
    found = find_distrust(enforcing.host, [signer])

    assert (found.code if found else None) == code


def test_keys_of_shim_count_by_their_identifiers(enforcing: Machine) -> None:
    firmware = enforcing.write(SECURE_BOOT)
    firmware.write_bytes(b"\6\0\0\0\1")
    enforcing.write("/usr/bin/mokutil", mode=0o755)
    enforcing.teach("mokutil --list-enrolled", ENROLLED)

    assert find_distrust(enforcing.host, [Signer("From the console", "abcdef")]) is None
    assert find_distrust(enforcing.host, [Signer("From the console", "abcd00")]) is not None


def test_keys_that_cannot_be_listed_are_a_doubt(machine: Machine) -> None:
    machine.write("/sys/module/module/parameters/sig_enforce", "Y\n")

    found = find_distrust(machine.host, [Signer("Site Operations")])

    assert found is not None
    assert (found.code, found.is_certain) == ("signature-unknown", False)


@pytest.mark.parametrize(
    ("lockdown", "is_enforcing"), [("[none] integrity", False), ("none [integrity]", True), ("", True)]
)
def test_secure_boot_alone_counts_where_the_kernel_says_nothing(
    machine: Machine, lockdown: str, *, is_enforcing: bool
) -> None:
    machine.write(SECURE_BOOT).write_bytes(b"\6\0\0\0\1")
    if lockdown:
        machine.write("/sys/kernel/security/lockdown", f"{lockdown}\n")

    assert enforces_signatures(machine.host) == is_enforcing


def test_a_kernel_that_takes_any_module_is_not_asked_for_keys(machine: Machine) -> None:
    assert find_distrust(machine.host, [Signer("")]) is None


@pytest.mark.parametrize("text", ["", "[]", '{"6.1": 7}', '{"6.1": [{"name": "x"}]}'])
def test_what_is_no_list_of_signers_names_nobody(machine: Machine, text: str) -> None:
    machine.write("/set/signers.json", text)

    assert read_signers(machine.host, "/set", "6.1") == ()


def test_signers_are_kept_by_kernel(machine: Machine) -> None:
    machine.host.path("/set").mkdir()
    write_signers(machine.host, "/set", {"6.1": [Signer("a", "0b"), Signer("a", "0b")]})

    assert read_signers(machine.host, "/set", "6.1") == (Signer("a", "0b"),)
    assert read_signers(machine.host, "/set", "6.2") == ()
