"""What a device has to be like to belong to a class: one alternative of each condition. Pure but for look-ups."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from plugin.devices.other.host import SysfsDevice

_CLASS_DIGITS = 6


class Condition(Protocol):
    """One line of `match`."""

    def holds(self, device: SysfsDevice) -> bool:
        """Whether the device fulfils it."""


def _number(text: str) -> str:
    """Return a hexadecimal number of sysfs or of a file in one form: small letters, without 0x."""
    return text.lower().removeprefix("0x")


@dataclass(frozen=True)
class Code:
    """`vendor`, `device` and the like: a hexadecimal number."""

    attribute: str
    wanted: tuple[str, ...]

    def holds(self, device: SysfsDevice) -> bool:
        """Whether its number is one of them."""
        wanted = {_number(each) for each in self.wanted}
        return any(_number(value) in wanted for value in device.values(self.attribute))


@dataclass(frozen=True)
class ClassCode:
    """`class`: the beginning of PCI's class code, such as 02 for every network controller."""

    wanted: tuple[str, ...]

    def holds(self, device: SysfsDevice) -> bool:
        """Whether its code begins with one of them."""
        codes = [_number(value).rjust(_CLASS_DIGITS, "0") for value in device.values("class")]
        return any(code.startswith(_number(each)) for code in codes for each in self.wanted)


@dataclass(frozen=True)
class LinkedTo:
    """`driver` and `physfn`: where a link of its folder leads, as patterns of the last component."""

    link: str
    wanted: tuple[str, ...]

    def holds(self, device: SysfsDevice) -> bool:
        """Whether it leads to one of them."""
        target = device.link(self.link)
        return bool(target) and any(fnmatchcase(target, pattern) for pattern in self.wanted)


@dataclass(frozen=True)
class Named:
    """`name` and `address`: patterns of its entry's name, or of its PCI address."""

    is_address: bool
    patterns: tuple[str, ...]

    def holds(self, device: SysfsDevice) -> bool:
        """Whether one of them fits."""
        name = device.address if self.is_address else device.name
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)


@dataclass(frozen=True)
class Says:
    """`attributes`: what one of the files says."""

    path: str
    wanted: tuple[str, ...]

    def holds(self, device: SysfsDevice) -> bool:
        """Whether any of the files says one of them."""
        return any(value in self.wanted for value in device.values(self.path))


@dataclass(frozen=True)
class Present:
    """`present`: something exists in its folder."""

    paths: tuple[str, ...]

    def holds(self, device: SysfsDevice) -> bool:
        """Whether one of them does."""
        return any(device.names(path) for path in self.paths)


@dataclass(frozen=True)
class Absent:
    """`absent`: nothing of this exists in its folder."""

    paths: tuple[str, ...]

    def holds(self, device: SysfsDevice) -> bool:
        """Whether none of them does."""
        return not Present(self.paths).holds(device)
