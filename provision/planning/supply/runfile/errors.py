"""What can go wrong with a runfile.

GrapnelError
└── RunfileError     1   it cannot be had, is not the declared file, or does not have what is wanted of it
"""

from __future__ import annotations

from provision.base.errors import GrapnelError


class RunfileError(GrapnelError):
    """A runfile cannot be had, is not the declared file, or does not have what is wanted of it."""
