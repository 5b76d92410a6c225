"""What the small fleet may be declared to have: policies that together use every key that decides when nodes begin."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import AtTimeout, Domains, Rollout, WaitFor, Wave, Window, Zones

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW, NEWER = "535.261.03", "550.163.01", "570.195.03"
NAMES = ("n1", "n2", "n3", "n4")
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
ZONE = "topology.kubernetes.io/zone"
RACK = "example.com/rack"
LABELS: Final = {  # n4 is in no rack
    "n1": {ZONE: "z0", RACK: "r0"},
    "n2": {ZONE: "z1", RACK: "r1"},
    "n3": {ZONE: "z0", RACK: "r0"},
    "n4": {ZONE: "z1"},
}
WINDOWS = (Window(start="12:00", end="12:10"), Window(start="12:25", end="12:35"))

POLICIES = (
    Rollout(max_parallel=1, max_unavailable=1),
    Rollout(max_parallel=2, max_unavailable=2, max_failures=1),
    Rollout(max_parallel=4, max_unavailable=3, max_failures=2, soak_minutes=1),
    Rollout(max_parallel=2, max_unavailable=2, waves=(Wave(size=1, soak_minutes=1), Wave())),
    Rollout(max_parallel=2, max_unavailable=4, max_failures=1, waves=(Wave(size=1), Wave(size="50%"), Wave())),
    Rollout(max_parallel=4, max_unavailable=4, max_failures=1, zones=Zones(node_label=ZONE, max_unavailable=1)),
    Rollout(max_parallel=4, max_unavailable=2, max_failures=2, domains=Domains(node_label=ZONE)),
    Rollout(max_parallel=2, max_unavailable=2, windows=WINDOWS, node_minutes=4, max_failures=4),
    Rollout(max_parallel=2, max_unavailable=2, max_failures=1, wait_for=WaitFor(namespaces=("jobs",))),
    Rollout(
        max_parallel=4,
        max_unavailable=3,
        max_failures=1,
        domains=Domains(node_label=RACK),
        zones=Zones(node_label=ZONE, max_unavailable=2),
        windows=WINDOWS,
        node_minutes=4,
        waves=(Wave(size=1), Wave()),
        wait_for=WaitFor(namespaces=("jobs",), timeout_minutes=3),
    ),
    Rollout(
        max_parallel=4,
        max_unavailable=3,
        max_failures=2,
        domains=Domains(node_label=RACK),
        wait_for=WaitFor(namespaces=("jobs",), timeout_minutes=2, on_timeout=AtTimeout.GIVE_UP),
    ),
    Rollout(
        max_parallel=2,
        max_unavailable=2,
        max_failures=1,
        zones=Zones(node_label=ZONE, max_unavailable=1, one_at_a_time=True),
        windows=WINDOWS,
        node_minutes=4,
        soak_minutes=1,
    ),
)


@dataclass(frozen=True, slots=True)
class Declared:
    """What the declaration says at some moment."""

    target: str
    rollout: Rollout


def index_of(has: Callable[[Rollout], object]) -> int:
    """Return the index of the first policy of a kind."""
    return next(index for index, policy in enumerate(POLICIES) if has(policy))
