"""What the rules ask of the machine: devices in sysfs, and device nodes. Not here: how it is read (`sysfs`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class SysfsDevice(Protocol):
    """A device's folder in sysfs. Paths are relative to it, with `*` and `?` within a component.

    Whatever cannot be read, is too long, or is not printable ASCII is not there.
    """

    @property
    def name(self) -> str:
        """Its entry in the folder that was searched."""

    @property
    def path(self) -> str:
        """Its own folder, in which it is one and the same however it was found."""

    @property
    def address(self) -> str:
        """Its PCI address, "" where it is on no PCI bus."""

    @property
    def numa_node(self) -> int | None:
        """Its NUMA node, None where the machine does not say."""

    def values(self, path: str) -> Sequence[str]:
        """Return the content of each file, without the line's end."""

    def names(self, path: str) -> Sequence[str]:
        """Return the last component of each path that exists."""

    def link(self, name: str) -> str:
        """Return the last component of where a link leads, "" where there is none."""


class Host(Protocol):
    """The machine."""

    def devices(self, folder: str) -> Sequence[SysfsDevice]:
        """Return the devices with an entry in a folder of sysfs, each once, in the order of their entries."""

    def node(self, path: str) -> str | None:
        """Return the host path of a device node, None where it does not exist."""
