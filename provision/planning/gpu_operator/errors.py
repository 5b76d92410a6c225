"""What can go wrong with the objects of the GPU operator.

GrapnelError
└── OperatorObjectsError    1   they cannot be read, or are not what is needed
"""

from __future__ import annotations

from provision.base.errors import GrapnelError


class OperatorObjectsError(GrapnelError):
    """Objects of the GPU operator cannot be read, or something is missing among them."""
