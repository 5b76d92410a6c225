"""Sets device rules under cgroup v1, in files of the container's group.

Source: Documentation/admin-guide/cgroup-v1/devices.rst.
"""

from __future__ import annotations

import os

from runtime_hook.container.devicerules import Unrestricted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.container.devicerules import DeviceRules

_ALL = "a *:* rwm"


class ControllerFiles:
    """One group of the devices controller."""

    def __init__(self, group: str) -> None:
        self._group = group

    def allow(self, rules: tuple[str, ...]) -> None:
        """Add all rules, or none."""
        for count, rule in enumerate(rules):
            try:
                _write(f"{self._group}/devices.allow", rule)
            except BaseException:
                self.deny(rules[:count])
                raise

    def deny(self, rules: tuple[str, ...]) -> None:
        """Take rules away."""
        for rule in reversed(rules):
            _write(f"{self._group}/devices.deny", rule)


def open_group(group: str) -> DeviceRules:
    """Return a group's rules."""
    with open(f"{group}/devices.list", encoding="utf-8") as file:
        return Unrestricted() if file.read().strip() == _ALL else ControllerFiles(group)


def _write(path: str, rule: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, rule.encode())
    finally:
        os.close(descriptor)
