"""Renders simulated roll-outs: waves, nodes that are out of the ordinary, what was waited for, and the worst case."""

from __future__ import annotations

from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from rich.table import Table

from provision.base.printable import printable_json
from provision.declaration.spec.model import GpuInterface
from provision.report.console import Text
from provision.report.terminal import age, count, names
from provision.rollout.model import Phase
from provision.rollout.simulate.many import waves_of, worst_of
from provision.rollout.simulate.play import resolution_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from provision.rollout.simulate.many import SeedResult
    from provision.rollout.simulate.playback import NodePlay, Playback
    from provision.rollout.simulate.scenario import Scenario

SCHEMA: Final = "grapnel.dev/simulation/v1alpha1"
ALL_SHOWN: Final = 40  # nodes up to which each has a line
SLOWEST: Final = 5
WAITS_SHOWN: Final = 6
_WHOLE: Final = 100


def render_simulation(scenario: Scenario, first: Playback, outcomes: Sequence[SeedResult]) -> Iterator[RenderableType]:
    """Yield the roll-out of the first seed, and how the others compare."""
    origins = ", ".join(sorted({node.driver for node in scenario.nodes} - {scenario.target})) or "no other driver"
    head = f" of {count(len(scenario.nodes), 'node')}, {origins} → {scenario.target}, seed {first.seed}"
    yield Text.assemble(("simulated roll-out", "bold"), head)
    yield from _ending(first, resolution_s(scenario))
    if scenario.interface is not None:
        yield from _withheld(scenario)
    yield ""
    yield _waves(first)
    yield ""
    yield _nodes(first)
    if first.waits:
        yield ""
        yield from _waits(first)
    if len(outcomes) > 1:
        yield ""
        yield from _seeds(outcomes)


def _withheld(scenario: Scenario) -> Iterator[Text]:
    """Yield which pods go on with GPUs that nobody else is given meanwhile."""
    pods = [
        f"{pod.name} on {node.name}" for node in scenario.nodes for pod in node.pods if node.driver != scenario.target
    ]
    had = {scenario.target, *(node.driver for node in scenario.nodes)}
    which = ", as far as they are to be given otherwise" if GpuInterface.BOTH.value in had else ""
    if pods:
        yield Text(f"no pod has to leave; withheld until they end are the GPUs of {names(pods)}{which}")


def _ending(one: Playback, resolution: float) -> Iterator[Text]:
    coarse = f"; each phase is seen up to {resolution:.0f} s late" if resolution >= 1 else ""
    yield Text(f"took {age(one.took_s)}, at most {count(one.most_out, 'node')} worked at together{coarse}")
    if one.stop:
        yield Text(f"stopped: {one.stop}", "bold red")


def _waves(one: Playback) -> Table:
    table = _table(("wave", "nodes", "began", "ended", "done", "failed", "out: median", "95 %"), numbers=1)
    for wave in waves_of(one):
        table.add_row(
            wave.title,
            str(wave.nodes),
            _at(wave.began_s),
            _at(wave.ended_s),
            str(wave.done),
            Text(str(wave.failed), "bold red" if wave.failed else ""),
            age(wave.out_median_s),
            age(wave.out_p95_s),
        )
    return table


def _nodes(one: Playback) -> Table:
    """Show each node of a small fleet; of a large one those that failed, and those that were out for longest."""
    table = _table(("node", "out at", "back at", "out for", "ended"), numbers=1)
    shown = one.nodes
    if len(shown) > ALL_SHOWN:
        bad = [node for node in shown if node.ending not in (Phase.DONE, None)][: ALL_SHOWN - SLOWEST]
        slow = sorted(shown, key=lambda node: node.was_out_s or 0.0, reverse=True)[:SLOWEST]
        shown = (*bad, *(node for node in slow if node not in bad))
    for node in sorted(shown, key=lambda node: (node.out_s is None, node.out_s or 0.0)):
        out = "" if node.was_out_s is None else age(node.was_out_s)
        table.add_row(Text(node.name, "cyan"), _at(node.out_s), _at(node.back_s), out, _ended(node))
    if len(shown) < len(one.nodes):
        left = len(one.nodes) - len(shown)
        table.caption = f"{count(left, 'other node')}: --json has all"
        table.caption_justify = "left"
    return table


def _ended(node: NodePlay) -> Text:
    if node.ending is None:
        return Text(f"not touched: {node.reason}" if node.reason else "not touched", "yellow")
    if node.ending is Phase.DONE:
        return Text("done", "green")
    return Text(f"{node.ending}: {node.reason}", "bold red")


def _waits(one: Playback) -> Iterator[RenderableType]:
    total_s = sum(one.waits.values()) or 1.0
    yield Text.assemble(
        ("what nodes waited for", "bold"), f", in all {age(total_s)} of all nodes together, and the key that limits it"
    )
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", min_width=5)
    grid.add_column(overflow="fold")
    for reason, seconds in list(one.waits.items())[:WAITS_SHOWN]:
        grid.add_row(f"{seconds / total_s * _WHOLE:.0f}%", reason)
    yield grid


def _seeds(outcomes: Sequence[SeedResult]) -> Iterator[RenderableType]:
    worst = worst_of(outcomes)
    table = _table((f"{len(outcomes)} seeds", "best", "median", f"worst: seed {worst.seed}"), numbers=1)
    times = [one.took_s for one in outcomes]
    table.add_row("roll-out", age(min(times)), age(median(times)), age(worst.took_s))
    out = [one.out_median_s for one in outcomes]
    table.add_row("a node out of service", age(min(out)), age(median(out)), age(worst.out_median_s))
    longest = [one.out_longest_s for one in outcomes]
    table.add_row("longest out of service", age(min(longest)), age(median(longest)), age(worst.out_longest_s))
    for title, figures, worst_figure in (
        ("nodes that failed", [one.failed for one in outcomes], worst.failed),
        ("nodes that went back", [one.returned for one in outcomes], worst.returned),
        ("nodes not touched", [one.untouched for one in outcomes], worst.untouched),
    ):
        table.add_row(title, str(min(figures)), f"{median(figures):g}", str(worst_figure))
    yield table
    stopped = [one for one in outcomes if one.stop]
    if stopped:
        seeds = names([str(one.seed) for one in stopped])
        example = stopped[0]
        yield Text(f"stopped with {len(stopped)} of {len(outcomes)} seeds ({seeds}), such as: {example.stop}", "yellow")
    yield Text(f"`--seed {worst.seed}` shows the worst case", "dim")


def _table(columns: Sequence[str], *, numbers: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for index, title in enumerate(columns):
        table.add_column(title, justify="right" if numbers <= index < len(columns) - 1 else "left", overflow="fold")
    return table


def _at(seconds: float | None) -> str:
    return "" if seconds is None else f"+{age(seconds)}"


Seconds = Annotated[float, msgspec.Meta(ge=0)]


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node; null is what did not happen. ``ending`` is null for one that was not touched. ``reason`` is why."""

    name: str
    wave: int | None
    out_seconds: Seconds | None
    back_seconds: Seconds | None
    ending: Phase | None
    reason: str


class EntryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A node enters a phase, so many seconds after the roll-out began."""

    at: Seconds
    node: str
    phase: Phase
    reason: str


class SeedDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One seed in figures."""

    seed: int
    took_seconds: Seconds
    done: int
    returned: int
    failed: int
    untouched: int
    out_median_seconds: Seconds
    out_longest_seconds: Seconds
    most_out: int
    stop: str


class SimulationDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Simulated roll-outs: the first seed in full, all of them in figures. ``waits`` are node-seconds by reason."""

    schema: Literal["grapnel.dev/simulation/v1alpha1"]
    start: Annotated[datetime, msgspec.Meta(tz=True)]
    target: str
    seed: int
    took_seconds: Seconds
    stop: str
    waves: list[str]
    nodes: list[NodeDocument]
    timeline: list[EntryDocument]
    waits: dict[str, Seconds]
    seeds: list[SeedDocument]


def simulation_document(scenario: Scenario, first: Playback, outcomes: Sequence[SeedResult]) -> str:
    """Return the same as JSON (docs/contracts/simulation)."""
    document = SimulationDocument(
        schema=SCHEMA,
        start=scenario.start,
        target=scenario.target,
        seed=first.seed,
        took_seconds=round(first.took_s, 1),
        stop=first.stop,
        waves=list(first.waves),
        nodes=[_node_document(node) for node in first.nodes],
        timeline=[
            EntryDocument(at=round(each.at_s, 1), node=each.node, phase=each.phase, reason=each.reason)
            for each in first.entries
        ],
        waits={reason: round(seconds, 1) for reason, seconds in first.waits.items()},
        seeds=[_seed_document(one) for one in outcomes],
    )
    return printable_json(msgspec.to_builtins(document))


def _node_document(node: NodePlay) -> NodeDocument:
    return NodeDocument(
        name=node.name,
        wave=None if node.wave is None else node.wave + 1,
        out_seconds=None if node.out_s is None else round(node.out_s, 1),
        back_seconds=None if node.back_s is None else round(node.back_s, 1),
        ending=node.ending,
        reason=node.reason,
    )


def _seed_document(one: SeedResult) -> SeedDocument:
    return SeedDocument(
        seed=one.seed,
        took_seconds=round(one.took_s, 1),
        done=one.done,
        returned=one.returned,
        failed=one.failed,
        untouched=one.untouched,
        out_median_seconds=round(one.out_median_s, 1),
        out_longest_seconds=round(one.out_longest_s, 1),
        most_out=one.most_out,
        stop=one.stop,
    )
