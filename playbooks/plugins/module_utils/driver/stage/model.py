"""Defines what staging is asked for, what it finds, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """Something about a staged set that somebody has to know; an ``error`` keeps the set from being used."""

    code: str
    message: str
    remedy: str
    severity: str = "error"

    @property
    def is_error(self) -> bool:
        """Whether the set cannot be used."""
        return self.severity == "error"

    def document(self) -> dict[str, str]:
        """Return the finding as it is printed."""
        return {"code": self.code, "severity": self.severity, "message": self.message, "remedy": self.remedy}


class StageError(Exception):
    """A change cannot be staged; the node is as it was."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def failure(code: str, message: str, remedy: str) -> StageError:
    """Return an error with its finding."""
    return StageError(Finding(code, message, remedy))


def unreadable(error: Exception) -> StageError:
    """Return the error of a package database that cannot be read; ``error`` says why not."""
    return failure("packages-unreadable", str(error), "repair the package database first")


@dataclass(frozen=True)
class StageOptions:
    """How staging may go about it.

    ``offline``: nothing is downloaded, everything comes from what was handed over. ``install_tools``: dkms, compiler
    and their like, which the driver's module depends on anyway, are installed now if the node lacks them.
    ``without_modules``: packages alone are collected, somebody else has the modules.
    """

    offline: bool = False
    without_modules: bool = False
    install_tools: bool = True
    download_timeout_s: float = 1800.0
    build_timeout_s: float = 3600.0
    reserve_bytes: int = 512 * 1024 * 1024  # of the disk, left over afterwards


@dataclass(frozen=True)
class Cost:
    """What staging took: seconds of downloading and building, bytes on the disk, processor seconds of the build."""

    download_s: float = 0.0
    build_s: float = 0.0
    bytes: int = 0
    cpu_s: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return it as ``cost.json`` has it."""
        figures = {"download_s": self.download_s, "build_s": self.build_s, "cpu_s": self.cpu_s}
        return {**{name: round(value, 1) for name, value in figures.items()}, "bytes": self.bytes}


@dataclass(frozen=True)
class StageResult:
    """What became of staging; ``changed`` unless the set was complete before."""

    id: str
    complete: bool
    changed: bool
    findings: tuple[Finding, ...] = ()
    cost: Cost = Cost()

    def document(self) -> dict[str, Any]:
        """Return the result as the program prints it."""
        return {
            "id": self.id,
            "complete": self.complete,
            "changed": self.changed,
            "findings": [one.document() for one in self.findings],
            "cost": self.cost.document(),
        }
