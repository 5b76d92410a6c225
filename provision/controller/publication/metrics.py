"""Counts what the controller does, and says it as metrics in the Prometheus text format. Pure.

``METRICS`` has every name; docs/metrics.md shows it, and board and rules are held to it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.controller.stacks.derive import NodeIs
from provision.controller.stacks.status import StackState
from provision.rollout.status.metrics import Family, reason_class, render_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from provision.controller.stacks.derive import Observed
    from provision.rollout.interface.standing import Standing

    Labels = tuple[tuple[str, str], ...]
    Values = Callable[["Counts"], Iterator[tuple[Labels, float]]]

PREFIX: Final = "grapnel_controller_"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackCounts:
    """How one stack stands: its ``state``, its nodes by how they stand, and its rollout, None where none goes on.

    ``claimed`` nodes belong to another stack as well, ``drifted`` have found so by themselves, ``joining`` have the
    start-up taint, and on ``hosting``, one at most, runs this controller. ``done`` and ``failures`` count, since this
    process leads, how often a node was brought to its declaration, and how often a try failed.
    """

    state: str = ""
    nodes: Mapping[str, int] = field(default_factory=dict)
    claimed: int = 0
    drifted: int = 0
    joining: int = 0
    hosting: int = 0
    done: int = 0
    failures: int = 0
    rollout: Standing | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """What probes and metrics tell: whether this process leads, and how each stack stands.

    ``turn`` is the last look at everything, in seconds since 1970.
    """

    is_leader: bool = False
    stacks: Mapping[str, StackCounts] = field(default_factory=dict)
    rounds: int = 0
    turns: int = 0
    turn: float = 0.0


def nodes_by_stand(observed: Observed) -> dict[str, int]:
    """Return how many nodes stand how."""
    found: dict[str, int] = {}
    for stand in observed.nodes.values():
        found[stand.how.value] = found.get(stand.how.value, 0) + 1
    return found


@dataclass(frozen=True, slots=True)
class Metric:
    """A name with its kind, its labels, what it means, and where its values are from."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    values: Values


def render_controller(counts: Counts) -> bytes:
    """Return the page of metrics."""
    return render_families(
        Family(metric.name, metric.help, tuple(metric.values(counts)), metric.kind) for metric in METRICS
    )


def _one(value: Callable[[Counts], float]) -> Values:
    return lambda counts: iter([((), float(value(counts)))])


def _each(value: Callable[[StackCounts], float]) -> Values:
    """Yield a value of every stack."""
    return lambda counts: ((_of(stack), float(value(each))) for stack, each in sorted(counts.stacks.items()))


def _rollouts(value: Callable[[StackCounts], float]) -> Values:
    """Yield a value of every stack that has a rollout."""
    return lambda counts: (
        (_of(stack), float(value(each))) for stack, each in sorted(counts.stacks.items()) if each.rollout is not None
    )


def _of(stack: str, **more: str) -> Labels:
    return (("stack", stack), *more.items())


def _states(counts: Counts) -> Iterator[tuple[Labels, float]]:
    for stack, each in sorted(counts.stacks.items()):
        for state in StackState:
            yield _of(stack, state=state.value), float(each.state == state)


def _nodes(counts: Counts) -> Iterator[tuple[Labels, float]]:
    for stack, each in sorted(counts.stacks.items()):
        for stands in NodeIs:
            yield _of(stack, state=stands.value), float(each.nodes.get(stands.value, 0))


def _waiting(counts: Counts) -> Iterator[tuple[Labels, float]]:
    for stack, each in sorted(counts.stacks.items()):
        if each.rollout is None:
            continue
        reasons = Counter(reason_class(reason) for reason in each.rollout.waiting.values())
        for reason, number in sorted(reasons.items()):
            yield _of(stack, reason=reason), float(number)


def _out(each: StackCounts) -> float:
    return 0.0 if each.rollout is None else len(each.rollout.out)


def _stopped(each: StackCounts) -> float:
    return 0.0 if each.rollout is None else float(bool(each.rollout.stop))


def _began(each: StackCounts) -> float:
    return 0.0 if each.rollout is None else each.rollout.began.timestamp()


METRICS: Final = (
    Metric(f"{PREFIX}leader", "gauge", (), "Whether this process leads.", _one(lambda counts: counts.is_leader)),
    Metric(
        f"{PREFIX}turn_timestamp_seconds",
        "gauge",
        (),
        "When this process last looked at everything, in seconds since 1970.",
        _one(lambda counts: counts.turn),
    ),
    Metric(
        f"{PREFIX}rounds",
        "gauge",
        (),
        "Stacks whose nodes are looked at or changed now.",
        _one(lambda counts: counts.rounds),
    ),
    Metric(f"{PREFIX}stack_state", "gauge", ("stack", "state"), "Whether a stack is in a state.", _states),
    Metric(f"{PREFIX}nodes", "gauge", ("stack", "state"), "Nodes by stack and how they stand.", _nodes),
    Metric(
        f"{PREFIX}nodes_claimed_twice",
        "gauge",
        ("stack",),
        "Nodes that another stack selects as well.",
        _each(lambda each: each.claimed),
    ),
    Metric(
        f"{PREFIX}nodes_drifted",
        "gauge",
        ("stack",),
        "Nodes that have found by themselves that they are not as declared.",
        _each(lambda each: each.drifted),
    ),
    Metric(
        f"{PREFIX}nodes_joining",
        "gauge",
        ("stack",),
        "Nodes that have the start-up taint.",
        _each(lambda each: each.joining),
    ),
    Metric(
        f"{PREFIX}nodes_hosting",
        "gauge",
        ("stack",),
        "Nodes of a stack on which the controller itself runs, beside its containers: 0 or 1.",
        _each(lambda each: each.hosting),
    ),
    Metric(
        f"{PREFIX}nodes_done_total",
        "counter",
        ("stack",),
        "Times a node was brought to its declaration.",
        _each(lambda each: each.done),
    ),
    Metric(
        f"{PREFIX}node_failures_total",
        "counter",
        ("stack",),
        "Times a try to bring a node to its declaration failed.",
        _each(lambda each: each.failures),
    ),
    Metric(
        f"{PREFIX}rollout_out_nodes",
        "gauge",
        ("stack",),
        "Nodes that a rollout has taken out of service.",
        _rollouts(_out),
    ),
    Metric(
        f"{PREFIX}rollout_waiting_nodes",
        "gauge",
        ("stack", "reason"),
        "Nodes of a rollout that wait, by why.",
        _waiting,
    ),
    Metric(
        f"{PREFIX}rollout_stopped",
        "gauge",
        ("stack",),
        "Whether a rollout lets no further node begin.",
        _rollouts(_stopped),
    ),
    Metric(
        f"{PREFIX}rollout_began_timestamp_seconds",
        "gauge",
        ("stack",),
        "When a rollout began, in seconds since 1970.",
        _rollouts(_began),
    ),
)
