"""Writes what a UEFI firmware keeps when the power is off: whose signatures it accepts, and what it starts.

The store's form is EDK II's (`MdeModulePkg/Include/Guid/VariableFormat.h`, with authentication), the values' UEFI's.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Final

from lab.machine.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence

_GLOBAL: Final = uuid.UUID("8be4df61-93ca-11d2-aa0d-00e098032b8c")
_SECURITY: Final = uuid.UUID("d719b2cb-3d3a-4596-a3bc-dad00e67656f")
_ENABLE: Final = uuid.UUID("f0a30bc7-af08-4556-99c4-001009c93a44")  # EDK II's own: whether secure boot is switched on
_X509: Final = uuid.UUID("a5c059a1-94e4-4aa7-87b5-ab155c2bf072")
_OWNER: Final = uuid.UUID("5f9a3a1c-0f4e-4f0c-9f5e-6f8f0c5a7d11")
# Kept without power, there while the firmware starts, there afterwards; written with a date and a signature.
_KEPT, _AT_START, _AFTER, _SIGNED = 1, 2, 4, 32
_DATE: Final = struct.pack("<HBB12x", 2026, 1, 1)
_LENGTH_AT: Final = 48  # of the volume's header, behind which the store begins with one of its own
_STORE_HEADER_BYTES: Final = 28
_ADDED: Final = 0x3F
_ERASED: Final = b"\xff"


def write_variables(empty: bytes, owner: bytes, accepted: Sequence[bytes], file: str, command_line: str) -> bytes:
    """Return a store with the certificates (DER) of the machine's owner and of those whose programs it starts.

    It starts ``file`` of the first file system that has it. Raises LabError if ``empty`` is no store without variables.
    """
    kept = _KEPT | _AT_START | _AFTER
    entry = _path(4, 4, _text(file)) + _path(0x7F, 0xFF, b"")
    entry = struct.pack("<IH", 1, len(entry)) + _text("Linux") + entry + _text(command_line)
    added = b"".join(
        (
            _variable("PK", _GLOBAL, kept | _SIGNED, _list(owner)),
            _variable("KEK", _GLOBAL, kept | _SIGNED, _list(owner)),
            _variable("db", _SECURITY, kept | _SIGNED, b"".join(map(_list, accepted))),
            _variable("SecureBootEnable", _ENABLE, _KEPT | _AT_START, b"\1"),
            _variable("Boot0001", _GLOBAL, kept, entry),
            _variable("BootOrder", _GLOBAL, kept, struct.pack("<H", 1)),
            _variable("Timeout", _GLOBAL, kept, struct.pack("<H", 0)),
        )
    )
    begin = struct.unpack_from("<H", empty, _LENGTH_AT)[0] + _STORE_HEADER_BYTES
    if empty[begin : begin + len(added)] != _ERASED * len(added):
        raise LabError("the firmware's store of variables is not empty, or of another form")
    return empty[:begin] + added + empty[begin + len(added) :]


def _variable(name: str, vendor: uuid.UUID, attributes: int, value: bytes) -> bytes:
    date = _DATE if attributes & _SIGNED else bytes(len(_DATE))
    named = _text(name)
    head = struct.pack("<HBxIQ16sIII", 0x55AA, _ADDED, attributes, 0, date, 0, len(named), len(value))
    whole = head + vendor.bytes_le + named + value
    return whole + _ERASED * (-len(whole) % 4)


def _list(certificate: bytes) -> bytes:
    """Return an EFI_SIGNATURE_LIST of one certificate."""
    entry = _OWNER.bytes_le + certificate
    return _X509.bytes_le + struct.pack("<III", 28 + len(entry), 0, len(entry)) + entry


def _path(kind: int, subkind: int, value: bytes) -> bytes:
    return struct.pack("<BBH", kind, subkind, 4 + len(value)) + value


def _text(text: str) -> bytes:
    return f"{text}\0".encode("utf-16-le")
