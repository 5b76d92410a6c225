"""Says how a fleet's upgrade stands as metrics, in the Prometheus text format 0.0.4. Pure.

The same metrics, whoever offers them: the live page, of what is read from outside, or a running apply.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.rollout.status import situations
from provision.rollout.status.estimate import measure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from provision.rollout.model import Record
    from provision.rollout.status.model import FleetStatus, NodeStatus

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "grapnel_rollout_"
OTHER: Final = "other"
# Why a node waits, by the words of its reason: the first that is found counts.
CLASSES: Final = (
    ("stopped", r"^stopped: "),
    ("paused", r"^paused "),
    ("skipped", r"\bis skipped: "),
    ("window", r"\bits window, which\b|\bthe window closes\b|^no window is\b|\bbecause of a blackout\b"),
    ("hold", r": waits until |\bmaintenance operator\b|^waits for the former NodeMaintenance\b"),
    ("gate", r"\bgate .+ is closed: "),
    ("soak", r"\bsoaks until\b"),
    ("wave", r"\bwave \d+ of \d+\b"),
    ("pods", r"^pods? |\bdisruption budget\b"),
    ("processes", r"\ba GPU is held by\b"),
    ("jobs", r"^waits for .+ to end(,|$)"),
    ("unavailable", r"\bmay be unavailable\b"),
    ("not-ready", r"\b(is not|has not been) ready\b"),
    ("unreachable", r"^cannot be reached: "),
    ("domain", r"\bits domain\b"),
    ("turn", r"^waits for "),
)
_CLASSES: Final = tuple((name, re.compile(pattern)) for name, pattern in CLASSES)
_IN_LABEL: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name: labels and values."""

    name: str
    help: str
    samples: tuple[tuple[tuple[tuple[str, str], ...], float], ...]
    kind: str = "gauge"


def render_metrics(status: FleetStatus) -> bytes:
    """Return the page of metrics."""
    return render_families(families(status))


def render_families(found: Iterable[Family]) -> bytes:
    """Return a page of these metrics."""
    return "".join(line for family in found for line in _lines(family)).encode()


def families(status: FleetStatus) -> Iterator[Family]:
    """Yield every metric that there is something to say about."""
    seen, nodes = status.seen, status.nodes
    states = Counter(node.situation.key for node in nodes)
    everyone = {each.key: 0 for each in situations.SITUATIONS} | states
    yield _family("nodes", "Nodes by state.", "state", everyone)
    waiting = Counter(_why(node) for node in nodes if _waits(node))
    for reason, number in status.unnamed:
        waiting[reason_class(reason)] += number
    yield _family("waiting_nodes", "Nodes that do not move, by why.", "reason", {OTHER: 0} | waiting)
    needy = sum(node.situation.needs_somebody for node in nodes)
    yield _one("nodes_needing_somebody", "Nodes that do not get on by themselves.", needy)
    yield _one("engine_at_work", "Whether an engine is upgrading nodes now.", float(status.is_at_work))
    if seen.is_lease_known:
        paused = float(seen.pause is not None)
        yield _one("paused", "Whether somebody has paused upgrades.", paused)
    if seen.standing is not None:
        yield _one("stopped", "Whether no further node begins.", float(bool(seen.standing.stop)))
        yield _one(
            "published_timestamp_seconds", "When the engine last said how it stands.", seen.standing.time.timestamp()
        )
    yield from _measures(status)
    if status.waves:
        yield _waves(status)


def reason_class(reason: str) -> str:
    """Return what kind of reason it is; new kinds are `other` until they are named here."""
    return next((name for name, pattern in _CLASSES if pattern.search(reason)), OTHER)


def _why(node: NodeStatus) -> str:
    return "skipped" if node.situation is situations.SKIPPED else reason_class(node.reason)


def _waits(node: NodeStatus) -> bool:
    return bool(node.reason) and not node.situation.needs_somebody and node.situation is not situations.IDLE


def _measures(status: FleetStatus) -> Iterator[Family]:
    """Yield when something last happened, and how long phases take."""
    records = [node.record for node in status.nodes if node.record is not None]
    now = status.seen.time
    moved = [record.since for record in records if record.since <= now]
    if moved:
        yield _one("last_progress_timestamp_seconds", "When a node last entered a phase.", max(moved).timestamp())
    if status.left_s is not None:
        yield _one("left_seconds", "Estimated time until the last node is done.", status.left_s)
    medians = measure(records, status.seen.standing).medians
    if medians:
        yield _family(
            "phase_seconds",
            "Median time of each phase in this upgrade.",
            "phase",
            {str(key): value for key, value in medians.items()},
        )
    out = _longest(records, status)
    if out is not None:
        yield _one(
            "longest_out_of_service_seconds",
            "How long the node has been out of service that has been so the longest.",
            out,
        )


def _longest(records: Iterable[Record], status: FleetStatus) -> float | None:
    began = [record.began for record in records if not record.phase.is_over and record.began <= status.seen.time]
    return (status.seen.time - min(began)).total_seconds() if began else None


def _waves(status: FleetStatus) -> Family:
    samples = [
        ((("wave", wave.title), ("state", state)), float(number))
        for wave in status.waves
        for state, number in (
            ("done", wave.done),
            ("out", wave.flying),
            ("failed", wave.failed),
            ("waiting", wave.total - wave.done - wave.flying - wave.failed),
        )
    ]
    return Family(f"{PREFIX}wave_nodes", "Nodes of each wave.", tuple(samples))


def _family(name: str, about: str, label: str, values: dict[str, int] | dict[str, float]) -> Family:
    return Family(f"{PREFIX}{name}", about, tuple((((label, key),), float(value)) for key, value in values.items()))


def _one(name: str, about: str, value: float) -> Family:
    return Family(f"{PREFIX}{name}", about, (((), float(value)),))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in family.samples:
        text = ",".join(f'{key}="{said.translate(_IN_LABEL)}"' for key, said in labels)
        number = str(int(value)) if value.is_integer() else repr(value)
        yield f"{family.name}{f'{{{text}}}' if text else ''} {number}\n"
