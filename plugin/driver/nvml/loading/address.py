"""PCI addresses as NVML writes them, and as sysfs does."""

from __future__ import annotations


def sysfs_address(bus_id: str) -> str:
    """Return a PCI address as sysfs writes it; NVML writes eight digits of domain and capitals."""
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"
