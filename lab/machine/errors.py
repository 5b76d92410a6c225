"""Errors of the laboratory: a message of one line, and a hint that helps.

LabError
├── HostError       the machine lacks a right, a tool or a kernel feature
├── MirrorError     apt's configuration names no usable Debian mirror
├── CommandError    a command that the laboratory ran failed or took too long
├── BusyError       another command holds the lock that this one needs
├── SiteError       the request does not fit the site: unknown node, other specification, foreign left-over
├── BootError       a node did not come up; ``hint`` is the end of its console
└── PackageError    the bundle has no such package
"""

from __future__ import annotations


class LabError(Exception):
    """Base of all; ``hint`` says what helps, or shows what the failing part printed last."""

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
    """The request does not fit the site."""


class BootError(LabError):
    """A node did not come up in time."""


class PackageError(LabError):
    """The bundle has no such package."""
