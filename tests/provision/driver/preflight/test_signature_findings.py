"""Modules that a kernel which insists on signatures would refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.driver import (
    SecureBoot,
)
from provision.planning.driver_change import DriverChange, Signing
from tests.provision.driver.preflight.situations import (
    ENFORCED,
    NEW,
    NEXT,
    RUNNING,
    SIGNED,
    TOOLS,
    found,
    make_change,
    make_node,
)
from tests.provision.samples import replace

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

SIGNATURES = {
    "DKMS signs with a key that nobody enrolled": (
        make_node(secure_boot=ENFORCED),
        make_change(),
        "signing-key-not-enrolled",
        "the kernel does not have the certificate 'DKMS module signing key'",
    ),
    "the module that is there is signed by a stranger": (
        make_node(secure_boot=ENFORCED, kernels=(replace(RUNNING, modules=(replace(SIGNED, signer="lab"),)), NEXT)),
        make_change(),
        "signing-key-not-enrolled",
        "the kernel does not have the certificate 'lab'",
    ),
    "the module that is there is not signed": (
        make_node(secure_boot=ENFORCED, kernels=(replace(RUNNING, modules=(replace(SIGNED, signer=None),)), NEXT)),
        make_change(),
        "module-unsigned",
        f"kernel module {NEW} is there and not signed",
    ),
    "a DKMS that does not sign": (
        make_node(secure_boot=ENFORCED, build_tools=replace(TOOLS, dkms="2.8.4")),
        make_change(),
        "module-unsigned",
        "DKMS 2.8.4 does not sign what it builds",
    ),
    "no secure boot, and a kernel that insists on signatures": (
        make_node(secure_boot=SecureBoot(enabled=False, enforced=True, enrolled=())),
        make_change(),
        "signing-key-not-enrolled",
        "the kernel does not have the certificate 'DKMS module signing key'",
    ),
    "certificates that cannot be listed": (
        make_node(secure_boot=replace(ENFORCED, enrolled=None)),
        make_change(),
        "signature-unknown",
        "the kernel's certificates cannot be listed: it may not have 'DKMS module signing key'",
    ),
    "a key of the declaration's own": (
        make_node(secure_boot=ENFORCED),
        make_change(sign=Signing(key="/etc/keys/m.key", certificate="/etc/keys/m.der")),
        "signature-unknown",
        "whether the kernel has /etc/keys/m.der is found out while staging",
    ),
    "variables that cannot be read": (
        make_node(secure_boot=SecureBoot(enabled=None)),
        make_change(),
        "secure-boot-unknown",
        "the firmware's variables cannot be read: secure boot may be on",
    ),
}


@pytest.mark.parametrize(("facts", "change", "code", "message"), SIGNATURES.values(), ids=SIGNATURES)
def test_signatures(facts: NodeFacts, change: DriverChange, code: str, message: str) -> None:
    assert {code: found(facts, change)[code].message} == {
        one.code: one.message for one in found(facts, change).values()
    }
    assert found(facts, change)[code].message == message
