"""Errors of building Go programs.

LabError
└── GolangError     a program is not known, or cannot be built on this machine as it is
"""

from __future__ import annotations

from lab.machine.errors import LabError


class GolangError(LabError):
    """A Go program that cannot be built: the message says what is missing, the hint what helps."""
