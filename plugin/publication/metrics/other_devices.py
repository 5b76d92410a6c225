"""Families of devices that are not GPUs, by resource: a count can be thousands of units. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.publication.metrics.catalogue import OTHER_UNITS
from plugin.publication.metrics.exposition import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugin.devices.other.offered import OtherResource
    from plugin.publication.metrics.exposition import Family


def other_family(resources: Mapping[str, OtherResource]) -> Family:
    """Return how many units of each resource are healthy, and how many are not."""
    return OTHER_UNITS.family(_samples(resources))


def _samples(resources: Mapping[str, OtherResource]) -> Iterator[Sample]:
    for name, resource in resources.items():
        healthy = sum(offer.is_healthy for offer in resource.offers)
        for state, count in (("healthy", healthy), ("unhealthy", len(resource.offers) - healthy)):
            yield Sample(count, (("resource", name), ("class", resource.class_name), ("state", state)))
