"""What a metric is: a name that may be on the page. The metrics themselves are in `catalogue`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.publication.metrics.exposition import Family

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.publication.metrics.exposition import Sample

POD_LABELS = ("container", "namespace", "pod")


@dataclass(frozen=True)
class Metric:
    """A name that may be on the page. `labels` are all that a sample of it can have."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    def family(self, samples: Iterable[Sample]) -> Family:
        """Return the family of these samples."""
        return Family(self.name, self.kind, self.help, tuple(samples))
