"""What the daemon counts about itself. Used in the event loop's thread alone; the page is made of it there too."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from plugin.devices.sharing import device_of
from plugin.publication.metrics.catalogue import DEVICE_ALLOCATIONS, HEALTH_TRANSITIONS, REGISTRATIONS, RPC_DURATION
from plugin.publication.metrics.exposition import Sample, format_value

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping
    from typing import TypeVar

    from plugin.devices.inventory import Inventory
    from plugin.publication.metrics.exposition import Family, Labels

    _Key = TypeVar("_Key", bound=Hashable)

# An empty call takes about 0.9 ms, a kubelet waits for ever: where between is what an operator wants to know.
RPC_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts by upper bounds (inclusive), and their sum. `bounds` go up."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self, labels: Labels) -> Iterator[Sample]:
        """Return cumulative buckets up to +Inf, the sum and the count."""
        bounds = (*map(format_value, self._bounds), "+Inf")
        for bound, count in zip(bounds, accumulate(self._counts), strict=False):
            yield Sample(count, (*labels, ("le", bound)), "_bucket")
        yield Sample(self._sum, labels, "_sum")
        yield Sample(sum(self._counts), labels, "_count")


def transitions(before: Inventory, now: Inventory) -> tuple[tuple[str, str], ...]:
    """Return (UUID, "healthy" or "unhealthy") for each GPU that became so; one that was not known had been healthy."""
    was = {device.gpu.uuid: device.is_healthy for device in before.devices}
    return tuple(
        (device.gpu.uuid, "healthy" if device.is_healthy else "unhealthy")
        for device in now.devices
        if device.is_healthy != was.get(device.gpu.uuid, True)
    )


def _add(counts: dict[_Key, int], keys: Iterable[_Key]) -> None:
    for key in keys:
        counts[key] = counts.get(key, 0) + 1


def _sorted(counts: Mapping[tuple[str, ...], int], names: tuple[str, ...]) -> Iterator[Sample]:
    for values, count in sorted(counts.items()):
        yield Sample(count, tuple(zip(names, values, strict=False)))


class Counters:
    """Everything since the start of the process."""

    def __init__(self) -> None:
        self._registrations: dict[tuple[str, ...], int] = {}
        self._calls: dict[tuple[str, str], Histogram] = {}
        self._allocations: dict[tuple[str, ...], int] = {}
        self._transitions: dict[tuple[str, ...], int] = {}
        self._last_xid: dict[str, int] = {}

    def registered(self, resource: str) -> None:
        """Count a registration with a kubelet."""
        _add(self._registrations, [(resource,)])

    def called(self, method: str, code: str, seconds: float) -> None:
        """Count a call of the kubelet by its method, gRPC's status and how long it took."""
        self._calls.setdefault((method, code), Histogram(RPC_BOUNDS_S)).observe(seconds)

    def allocated(self, device_ids: Iterable[str]) -> None:
        """Count GPUs that a container was given, whole or in shares."""
        _add(self._allocations, ((device_of(device_id),) for device_id in device_ids))

    def observed(self, before: Inventory, now: Inventory) -> None:
        """Count the GPUs that changed between two looks."""
        _add(self._transitions, transitions(before, now))

    def xid(self, uuid: str, number: int) -> None:
        """Remember the last error event of a GPU."""
        self._last_xid[uuid] = number

    def last_xid(self, uuid: str) -> int | None:
        """Return the last error event of a GPU, None if there was none."""
        return self._last_xid.get(uuid)

    def families(self) -> tuple[Family, ...]:
        """Return what was counted, in an order that does not depend on what came first."""
        calls = (
            sample
            for (method, code), histogram in sorted(self._calls.items())
            for sample in histogram.samples((("method", method), ("code", code)))
        )
        return (
            REGISTRATIONS.family(_sorted(self._registrations, REGISTRATIONS.labels)),
            RPC_DURATION.family(calls),
            DEVICE_ALLOCATIONS.family(_sorted(self._allocations, DEVICE_ALLOCATIONS.labels)),
            HEALTH_TRANSITIONS.family(_sorted(self._transitions, HEALTH_TRANSITIONS.labels)),
        )
