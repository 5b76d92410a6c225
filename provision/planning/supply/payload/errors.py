"""What can go wrong with the payload.

GrapnelError
└── PayloadError    1   it cannot be built, or is not where it should be
"""

from __future__ import annotations

from provision.base.errors import GrapnelError


class PayloadError(GrapnelError):
    """The payload cannot be built, or is not where it should be."""
