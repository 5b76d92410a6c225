"""Errors of the lab: a one-line message and a hint.

LabError
├── HostError       the machine lacks a right, a tool or a kernel feature
├── MirrorError     apt's configuration names no usable Debian mirror
├── CommandError    a command that the lab ran failed or took too long
├── BusyError       another command holds the lock that this one needs
├── SiteError       the site does not allow the request: unknown node, other specification, foreign leftovers
├── BootError       a node did not boot; ``hint`` is the end of its console
└── PackageError    the bundle has no such package
"""

from __future__ import annotations


class LabError(Exception):
    """Base of all; ``hint`` says what to do, or shows the last output of the failing part."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message}\n{self.hint}" if self.hint else message


class HostError(LabError):
    """The machine lacks a right, a tool or a kernel feature."""


class MirrorError(LabError):
    """apt's configuration names no usable Debian mirror."""


class CommandError(LabError):
    """A command failed or took too long; ``hint`` has the command to paste and the end of its output."""


class BusyError(LabError):
    """Another command holds the lock that this one needs."""


class SiteError(LabError):
    """The site does not allow the request."""


class BootError(LabError):
    """A node did not boot in time."""


class PackageError(LabError):
    """The bundle has no such package."""
