"""Finds out whether the kernel would accept the driver's module where it accepts signed modules only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DriverSource
from provision.planning.driver.preflight import codes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.planning.driver.preflight.codes import Finding
    from provision.planning.driver.preflight.situation import Situation

# DKMS 3 signs what it builds with a key of its own (dkms(8), "mok_signing_key"); before it nobody does by default.
_DKMS_SIGNS: Final = 3
_DKMS_SIGNER: Final = "DKMS module signing key"
# Their kernels have the certificates of their own prebuilt modules built in.
_TRUSTED_SOURCES: Final = frozenset({DriverSource.DISTRIBUTION, DriverSource.CANONICAL})


def find_signatures(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with signatures."""
    secure_boot = situation.facts.secure_boot
    if not situation.facts.gpus or not situation.installs_module:
        return
    if secure_boot.enforced or secure_boot.enabled:
        yield from _find_signer(situation)
    elif secure_boot.enabled is None and situation.facts.kernels:
        yield codes.SECURE_BOOT_UNKNOWN.found("the firmware's variables cannot be read: secure boot may be on")


def _find_signer(situation: Situation) -> Iterator[Finding]:
    """Judge the module that is there already, else by who would sign the one that is made."""
    modules = [
        module
        for kernel in situation.kernels
        for module in kernel.modules
        if kernel.running and module.version == situation.version
    ]
    if modules:
        signer = modules[0].signer
        if signer is None:
            yield codes.UNSIGNED.found(f"kernel module {situation.version} is there and not signed")
        else:
            yield from _find_enrolled(situation, signer)
        return
    change = situation.change
    if change is None:
        return
    if change.sign is not None:
        yield codes.SIGNATURE_UNKNOWN.found(
            f"whether the kernel has {change.sign.certificate} is found out while staging"
        )
    elif change.dkms is not None:
        yield from _find_dkms_signer(situation)
    elif situation.driver.source not in _TRUSTED_SOURCES:
        source = situation.driver.source.value
        yield codes.SIGNATURE_UNKNOWN.found(
            f"whether the kernel accepts prebuilt modules of source {source} is not known"
        )


def _find_dkms_signer(situation: Situation) -> Iterator[Finding]:
    tools = situation.facts.build_tools
    version = (tools.dkms or "") if tools is not None else ""
    major = version.split(".", 1)[0]
    if major.isdecimal() and int(major) < _DKMS_SIGNS:
        yield codes.UNSIGNED.found(f"DKMS {version} does not sign what it builds")
    else:
        yield from _find_enrolled(situation, _DKMS_SIGNER)


def _find_enrolled(situation: Situation, signer: str) -> Iterator[Finding]:
    enrolled = situation.facts.secure_boot.enrolled
    if enrolled is None:
        yield codes.SIGNATURE_UNKNOWN.found(f"the kernel's certificates cannot be listed: it may not have '{signer}'")
    elif not any(signer in name for name in enrolled):
        yield codes.NOT_ENROLLED.found(f"the kernel does not have the certificate '{signer}'")
