"""Tells whether the kernel would accept the modules of a change, as far as that can be known before they are loaded.

Who signed them is found out while staging and kept in the set; what the kernel accepts is asked for each time.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import write_durably
from ansible_collections.grapnel.node.plugins.module_utils.preflight.secure_boot import read_secure_boot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

SIGNERS = "signers.json"
_MAX_BYTES = 256 * 1024


@dataclass(frozen=True)
class Signer:
    """Who signed a module: the name that it gives, empty for nobody, and the certificate's key where that is known."""

    name: str
    key_id: str = ""


@dataclass(frozen=True)
class Distrust:
    """Why the kernel would not accept a module, or may not where ``is_certain`` is false."""

    code: str
    message: str
    remedy: str
    is_certain: bool = True


def enforces_signatures(host: Host) -> bool:
    """Tell whether the kernel that runs refuses modules without a signature that it knows."""
    return _enforces(read_secure_boot(host))


def _enforces(secure_boot: Mapping[str, Any]) -> bool:
    """Secure boot counts only where the kernel does not say what it makes of it."""
    return bool(secure_boot["enforced"] or (secure_boot["enabled"] and secure_boot["lockdown"] is None))


def find_distrust(host: Host, signers: Iterable[Signer]) -> Distrust | None:
    """Return why the kernel that runs would not load modules of these signers, None when it would."""
    found = read_secure_boot(host)
    if not _enforces(found):
        return None
    for signer in dict.fromkeys(signers):
        if not signer.name:
            return Distrust(
                "module-unsigned",
                "the kernel accepts signed modules only, and the driver's are not signed",
                "declare driver.signing, use a source with signed modules, or turn secure boot off",
            )
        if found["enrolled"] is None:
            return Distrust(
                "signature-unknown",
                f"the kernel's certificates cannot be listed: it may not have '{signer.name}'",
                "compare with `mokutil --list-enrolled`",
                is_certain=False,
            )
        if not any(_is_of(signer, certificate) for certificate in found["enrolled"]):
            return Distrust(
                "signing-key-not-enrolled",
                f"the kernel accepts signed modules only, and does not have the certificate '{signer.name}'",
                "enroll it with `mokutil --import`, reboot and confirm at the console",
            )
    return None


def _is_of(signer: Signer, certificate: str) -> bool:
    """Compare with a line of the kernel's, ``name: key``: names are not enough where the key is known."""
    name, colon, key_id = certificate.rpartition(": ")
    if signer.key_id and colon and _is_hexadecimal(key_id):
        return key_id.lower() == signer.key_id
    return signer.name in (name if colon else certificate)


def _is_hexadecimal(text: str) -> bool:
    return bool(text) and all(letter in "0123456789abcdefABCDEF" for letter in text)


def write_signers(host: Host, folder: str, signers: Mapping[str, Iterable[Signer]]) -> None:
    """Keep in a set who signed the modules, by kernel; raises OSError."""
    document = {kernel: [asdict(one) for one in dict.fromkeys(each)] for kernel, each in signers.items()}
    write_durably(host.path(f"{folder}/{SIGNERS}"), json.dumps(document, indent=1, sort_keys=True).encode())


def read_signers(host: Host, folder: str, kernel: str) -> tuple[Signer, ...]:
    """Return who signed the modules of a set for a kernel, nobody where that is not known."""
    try:
        found = json.loads(host.read_text(f"{folder}/{SIGNERS}", _MAX_BYTES) or "")
        return tuple(Signer(str(one["name"]), str(one["key_id"])) for one in found.get(kernel, ()))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()
