"""Defines a remark: what a rule across keys has to say about a declaration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.declaration.spec.text.findings import Severity

if TYPE_CHECKING:
    from provision.declaration.spec.text.findings import KeyPath


@dataclass(frozen=True)
class Remark:
    """A rule that is not kept, and the key that people will want to change."""

    severity: Severity
    path: KeyPath
    message: str
    hint: str = ""


def error(path: KeyPath, message: str, hint: str = "") -> Remark:
    """Return what stops everything."""
    return Remark(Severity.ERROR, path, message, hint)


def warning(path: KeyPath, message: str, hint: str = "") -> Remark:
    """Return what is doubtful."""
    return Remark(Severity.WARNING, path, message, hint)
