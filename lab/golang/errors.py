"""Errors of building Go programs.

LabError
└── GolangError     a program is unknown, or cannot be built on this machine
"""

from __future__ import annotations

from lab.machine.errors import LabError


class GolangError(LabError):
    """A Go program that cannot be built: the message says what is missing, the hint what helps."""
