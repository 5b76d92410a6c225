"""Reads whether the machine loads unsigned modules, and whose signatures its kernel accepts.

What cannot be known is None: firmware variables may not be mounted, and keys may be hidden from whoever asks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_EFI = "/sys/firmware/efi"
_VARIABLES = f"{_EFI}/efivars"
_SECURE_BOOT = f"{_VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"  # UEFI 2.10, 3.3: EFI_GLOBAL_VARIABLE
_SHIM_OFF = f"{_VARIABLES}/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"  # shim: "mokutil --disable-validation"
_LOCKDOWN = "/sys/kernel/security/lockdown"
_SIG_ENFORCE = "/sys/module/module/parameters/sig_enforce"
_KEYS = "/proc/keys"
_VARIABLE_BYTES = 5  # four of attributes, one of value
_TIMEOUT_S = 20.0
_CHOSEN = re.compile(r"\[([a-z]+)\]")
_KEY = re.compile(r"\basymmetri\w*\s+(.*?): X509\.\w+ ", re.MULTILINE)
_SUBJECT = re.compile(r"^\s*Subject: *(.*)$", re.MULTILINE)
_KEY_ID = re.compile(r"Subject Key Identifier: *\n\s*((?:[0-9A-F]{2}:)+[0-9A-F]{2})")
_CERTIFICATE = re.compile(r"^\[key \d+\]$", re.MULTILINE)
_MAX_KEYS = 128


def read_secure_boot(host: Host) -> dict[str, Any]:
    """Return the facts ``secure_boot``."""
    enabled = _is_enabled(host)
    lockdown = _CHOSEN.search(host.read_text(_LOCKDOWN) or "")
    return {
        "enabled": enabled,
        "enforced": _is_enforced(host, lockdown.group(1) if lockdown else ""),
        "enrolled": _enrolled(host, is_enabled=enabled is True),
        "lockdown": lockdown.group(1) if lockdown else None,
    }


def _is_enabled(host: Host) -> bool | None:
    if not host.path(_EFI).is_dir():
        return False  # started by a BIOS, or a machine without firmware
    value = _variable(host, _SECURE_BOOT)
    if value is None:
        return None if host.names(_VARIABLES) == [] else False  # not mounted, or a firmware without secure boot
    return value == 1 and _variable(host, _SHIM_OFF) != 1


def _variable(host: Host, path: str) -> int | None:
    try:
        with host.open(path) as stream:
            data = stream.read(_VARIABLE_BYTES)
    except OSError:
        return None
    return data[-1] if len(data) == _VARIABLE_BYTES else None


def _is_enforced(host: Host, lockdown: str) -> bool:
    """Tell whether the kernel refuses modules without a valid signature (kernel_lockdown(7), module.sig_enforce)."""
    return lockdown in ("integrity", "confidentiality") or host.read_text(_SIG_ENFORCE) == "Y"


def _names_of_shim(text: str) -> list[str]:
    """Return the name of a certificate as the kernel lists it: with the identifier of its key, if it has one."""
    key_id = _KEY_ID.search(text)
    suffix = f": {key_id[1].replace(':', '').lower()}" if key_id else ""
    return [f"{name.strip()}{suffix}" for name in _SUBJECT.findall(text)]


def _enrolled(host: Host, *, is_enabled: bool) -> list[str] | None:
    """Return the names of the certificates in the kernel's keyrings; mokutil knows those of shim."""
    text = host.read_text(_KEYS)
    names = _KEY.findall(text or "")
    if is_enabled and host.find_command("mokutil"):
        shown = host.run(["mokutil", "--list-enrolled"], _TIMEOUT_S).stdout
        names += [name for each in _CERTIFICATE.split(shown) for name in _names_of_shim(each)]
    if not names:
        return [] if text is not None and not is_enabled else None
    found = dict.fromkeys(name.strip() for name in names)
    return None if len(found) > _MAX_KEYS else [printable(name) for name in found]  # one that is cut off is not lacking
