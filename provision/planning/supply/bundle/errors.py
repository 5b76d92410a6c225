"""What can go wrong with a bundle.

GrapnelError
└── BundleError      1   it cannot be written, is damaged, or lacks what a change needs
"""

from __future__ import annotations

from provision.base.errors import GrapnelError


class BundleError(GrapnelError):
    """A bundle cannot be written, is damaged, or lacks what a change needs."""
