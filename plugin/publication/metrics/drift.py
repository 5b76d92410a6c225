"""Families of the node's comparison with its declaration. None where no timer has compared it yet. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.drift.result import Verdict
from plugin.publication.metrics.catalogue import DRIFT_AT, DRIFT_DIFFERENCES, DRIFT_UP
from plugin.publication.metrics.exposition import Sample

if TYPE_CHECKING:
    from plugin.drift.result import Result
    from plugin.publication.metrics.exposition import Family


def drift_families(result: Result | None) -> tuple[Family, ...]:
    """Return how many differences of each kind there are, and when that was found."""
    if result is None:
        return ()
    is_compared = result.verdict is not Verdict.NOT_COMPARED
    counts = result.counts().items() if is_compared else ()
    return (
        DRIFT_DIFFERENCES.family(Sample(count, (("kind", kind.value),)) for kind, count in counts),
        DRIFT_UP.family([Sample(int(is_compared))]),
        DRIFT_AT.family([Sample(result.at)]),
    )
