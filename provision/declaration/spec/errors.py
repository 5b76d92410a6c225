"""What can go wrong with a declaration.

GrapnelError
└── DeclarationError    1   grapnel.yaml, or a level of the inventory, is wrong: carries all findings
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.base.errors import GrapnelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.spec.text.findings import Finding


class DeclarationError(GrapnelError):
    """A declaration is wrong: every finding of it, in reading order, errors and warnings."""

    def __init__(self, message: str, findings: Sequence[Finding], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.findings = tuple(findings)
