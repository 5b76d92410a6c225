"""Whether a GPU is a vGPU, from its PCI configuration space. Pure.

The hypervisor leaves a vendor-specific capability with the signature "VF" and records behind it; the record of type 0
holds version and branch of its driver (NVIDIA's internal/vgpu). Bytes of a device are not to be trusted: nothing is
read outside of them, and no chain is followed for ever.
"""

from __future__ import annotations

from typing import NamedTuple

_WHOLE = 256
_STATUS, _HAS_CAPABILITIES = 0x06, 0x10
_FIRST = 0x34
_VENDOR_SPECIFIC, _NO_CAPABILITY = 0x09, 0xFF
_SIGNATURE = b"VF"
_RECORDS = 5
_TEXT = 10


class HostDriver(NamedTuple):
    """The hypervisor's driver, "" for what its record does not say."""

    version: str = ""
    branch: str = ""


def find_host_driver(config: bytes) -> HostDriver | None:
    """Return the driver of a vGPU's host, None for other GPUs.

    Raises ValueError for one that is not whole: who may not see more is shown the first 64 bytes.
    """
    if len(config) < _WHOLE:
        raise ValueError(f"the configuration space has {len(config)} bytes instead of {_WHOLE}")
    capability = _vendor_capability(config[:_WHOLE])
    return _host_driver(capability) if capability[3:5] == _SIGNATURE else None


def _vendor_capability(config: bytes) -> bytes:
    position, seen = config[_FIRST] if config[_STATUS] & _HAS_CAPABILITIES else 0, set()
    while position and position not in seen and position + 2 < len(config):
        kind, following, length = config[position : position + 3]
        if kind == _NO_CAPABILITY:
            break
        if kind == _VENDOR_SPECIFIC:
            return config[position : position + length]
        seen.add(position)
        position = following
    return b""


def _host_driver(capability: bytes) -> HostDriver:
    position = _RECORDS
    while position + 1 < len(capability) and capability[position] != 0:
        length = capability[position + 1]
        if not length:
            return HostDriver()
        position += length
    texts = capability[position + 2 : position + 2 + 2 * _TEXT]
    if len(texts) < 2 * _TEXT:
        return HostDriver()
    return HostDriver(_text(texts[:_TEXT]), _text(texts[_TEXT:]))


def _text(raw: bytes) -> str:
    return raw.strip(b"\0").decode("ascii", "replace")
