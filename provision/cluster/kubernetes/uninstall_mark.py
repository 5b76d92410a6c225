"""Reads the request that nothing further begins, as it is on the controller's lease. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

UNINSTALLING: Final = "grapnel.dev/uninstalling-until"  # annotation of the lease: RFC 3339, by the API server's clock


def is_uninstalling(annotations: Mapping[str, str], now: datetime) -> bool:
    """Tell whether a lease asks its holder to begin nothing further; what is no time asks for nothing."""
    try:
        until = datetime.fromisoformat(annotations.get(UNINSTALLING, ""))
    except ValueError:
        return False
    return now < (until if until.tzinfo is not None else until.replace(tzinfo=UTC))
