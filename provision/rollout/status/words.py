"""Says in words what is known of a node's machine, for every view, and what would make known what is not. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DaemonAs, GpuInterface
from provision.rollout.status.derive import left_with, wanted_driver
from provision.rollout.status.reported import WHOLE, Daemon, Drift, gpu_resources, knows_offer, only_gpus
from provision.rollout.status.situations import DONE, IDLE, LAST_RUN_FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from provision.declaration.spec.model import Plugin
    from provision.rollout.status.model import FleetStatus, NodeStatus
    from provision.rollout.status.reported import Reported

NOT_KNOWN: Final = "not known"
_DAEMONS: Final = {
    Daemon.REPORTS: "reports",
    Daemon.SILENT: "silent",
    Daemon.NO_REPORT: "does not report",
}
_DRIFTS: Final = {
    Drift.NONE: "none",
    Drift.DRIFTED: "drifted",
    Drift.NOT_COMPARED: "not compared",
    Drift.NOT_KNOWN: NOT_KNOWN,
}
_NOW: Final = "what is so of the machine now"
_NOBODY_ASKED: Final = (
    "no Node tells it (`--kubeconfig` names a cluster); `grapnel plan` and `grapnel drift` ask the machines themselves"
)
_NOT_ASKED: Final = "nobody has asked for pods"
_NOT_DECLARED: Final = (
    "the node daemon does not report to its Node: plugin.kubernetesApi lets it, such as /etc/kubernetes/kubelet.conf"
)


@dataclass(frozen=True, slots=True)
class Cells:
    """One row of a table about nodes."""

    driver: str = NOT_KNOWN
    module: str = NOT_KNOWN
    engine: str = NOT_KNOWN
    daemon: str = NOT_KNOWN
    gpus: str = NOT_KNOWN
    drift: str = NOT_KNOWN

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them, in the order of `NAMES`."""
        return self.driver, self.module, self.engine, self.daemon, self.gpus, self.drift

    @property
    def unknown(self) -> list[str]:
        """The names of those that say nothing."""
        return [name for name, text in zip(NAMES, self.texts, strict=True) if text == NOT_KNOWN]


NAMES: Final = ("driver", "module", "engine", "daemon", "GPUs", "drift")
IN_USE: Final = "in use"
_RESOURCES: Final = 4  # of which the use is told: whoever makes pods may write any name
HEADS: Final = (*NAMES[:-1], IN_USE, NAMES[-1])  # of rows, in which nodes of different use are together


@dataclass(frozen=True, slots=True)
class Last:
    """What the last run that had to do with a node came to, and when it ended.

    ``driver`` is the one that a run has left it with, in words that say which run; empty where no run tells. It is not
    ``is_good`` where the run did not bring the node where it should be.
    """

    words: str
    time: datetime
    driver: str = ""
    is_good: bool = True


@dataclass(frozen=True, slots=True)
class MachineRow:
    """Nodes of which the same is known; ``last`` is None where no run is. ``in_use`` is from the least to the most."""

    nodes: tuple[str, ...]
    cells: Cells
    last: Last | None
    needs_somebody: bool
    in_use: str = NOT_KNOWN

    @property
    def texts(self) -> tuple[str, ...]:
        """What is known, in the order of `HEADS`."""
        *before, drift = self.cells.texts
        return (*before, self.in_use, drift)


@dataclass(frozen=True, slots=True)
class Unknown:
    """What is not known of nodes, and what would make it known."""

    what: str
    how: str
    nodes: tuple[str, ...]


def rows_of(nodes: Iterable[NodeStatus], last: Mapping[str, Last]) -> tuple[list[MachineRow], list[Unknown]]:
    """Return a row for nodes of which the same is known, first what needs an administrator; and what is not known."""
    groups: dict[tuple[bool, Cells, Last | None, bool], list[NodeStatus]] = {}
    unknown: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        run = last.get(node.name)
        cells = cells_of(node, run)
        key = (node.situation.needs_somebody, cells, run, used_on(node) is None)
        groups.setdefault(key, []).append(node)
        for note in ways_to_know(node, cells):
            unknown.setdefault(note, []).append(node.name)
    rows = [
        MachineRow(tuple(node.name for node in those), cells, run, needs, _use_of(those))
        for (needs, cells, run, _), those in groups.items()
    ]
    rows.sort(key=lambda row: not row.needs_somebody)
    return rows, [Unknown(what, how, tuple(those)) for (what, how), those in unknown.items()]


def with_last_runs(status: FleetStatus, last: Mapping[str, Last]) -> FleetStatus:
    """Return a status in which a failed run needs an administrator, where nothing later is known of its node."""
    if status.is_at_work or all(run.is_good for run in last.values()):
        return status
    nodes = tuple(_after(node, last.get(node.name)) for node in status.nodes)
    return replace(status, nodes=nodes)


def _after(node: NodeStatus, run: Last | None) -> NodeStatus:
    if run is None or run.is_good or node.reported is not None or node.situation not in (IDLE, DONE):
        return node
    if node.record is not None and node.record.since >= run.time:
        return node
    return replace(node, situation=LAST_RUN_FAILED, since=run.time, reason=run.words)


def facts_of(node: NodeStatus, last: Last | None) -> Iterator[tuple[str, str, datetime | None]]:
    """Yield everything that is known of one node's machine: a label, a text, and when that was last said."""
    cells, reported = cells_of(node, last), node.reported
    troubles: dict[str, str] = {}
    if reported is not None:
        ready = "ready" if reported.is_ready else "not ready"
        yield "kubelet", f"{reported.kubelet or 'version not known'}, {ready}", reported.heard
        troubles = {"driver": reported.driver_trouble, "GPUs": reported.gpu_trouble, "drift": reported.drift_words}
    for name, text in zip(NAMES, cells.texts, strict=True):
        if reported is None and text == NOT_KNOWN:
            continue  # all of it, for one reason, which is told at the end
        said = reported.said if reported is not None and name == "daemon" else None
        yield name, f"{text}: {troubles[name]}" if troubles.get(name) else text, said
        if reported is not None and name == "GPUs":
            yield IN_USE, in_use_words(node, reported), None
    if declared := _declared_words(node):
        yield "declared", declared, None
    for what, how in ways_to_know(node, cells):
        if what == IN_USE:
            continue  # it is told above
        yield NOT_KNOWN, f"{what}: {how}", None


def _declared_words(node: NodeStatus) -> str:
    """Return what a node is to have, as far as that is known."""
    told = []
    if node.declared is not None:
        told.append(f"driver {wanted_driver(node.declared)}" if node.declared.enabled else "the driver as it is")
    if node.plugin is not None:
        told.append(_offered_words(node.plugin) if node.plugin.enabled else "no node daemon")
    return ", ".join(told)


def _offered_words(plugin: Plugin) -> str:
    """Return how pods are to be given GPUs."""
    if plugin.interface is GpuInterface.DRA:
        return "GPUs by claims"
    claimed = f", but {', '.join(plugin.claims)} by claims" if plugin.interface is GpuInterface.BOTH else ""
    return f"GPUs as {plugin.resource}{claimed}"


def cells_of(node: NodeStatus, last: Last | None = None) -> Cells:
    """Return what is known of a node, as one row; what only a record or a run tells is told as that."""
    reported = node.reported
    left = "" if node.record is None or not node.record.phase.is_in_service else left_with(node.record)
    recorded = f"{left}, by its record" if left else (last.driver if last is not None else "") or NOT_KNOWN
    if reported is None:
        return Cells(driver=recorded)
    return Cells(
        driver=reported.driver or ("does not answer" if reported.driver_trouble else recorded),
        module=reported.module or NOT_KNOWN,
        engine=reported.engine or NOT_KNOWN,
        daemon=_DAEMONS[reported.daemon],
        gpus=gpu_words(node, reported),
        drift=_DRIFTS[reported.drift],
    )


def gpu_words(node: NodeStatus, reported: Reported) -> str:
    """Return how many GPUs a node was seen to have, and how many it offers; shares are told by resource."""
    seen = reported.seen
    if not knows_offer(reported, node.plugin):
        return NOT_KNOWN if seen is None else f"{seen} seen"
    offered = gpu_resources(reported, node.plugin)
    number, whole = sum(offered.values()), WHOLE if node.plugin is None else node.plugin.resource
    if not number:
        return "none offered" if seen is None else f"0 of {seen} offered"
    if offered.keys() <= {whole} and (seen is None or number <= seen):
        return f"{number} offered" if seen is None else f"{number} of {seen} offered"
    shares = ", ".join(f"{each} {name.removeprefix('nvidia.com/')}" for name, each in sorted(offered.items()) if each)
    return f"offered: {shares}" if seen is None else f"{seen} seen, offered: {shares}"


def used_on(node: NodeStatus) -> dict[str, int] | None:
    """Return how many GPUs of a node pods hold, by resource; None where that is not known."""
    if node.reported is None or node.reported.users is None:
        return None
    used: Counter[str] = Counter()
    for user in node.reported.users:
        used.update(only_gpus(user.devices, node.plugin))
    for name, room in (node.reported.published or {}).items():  # of one claim, several pods may have the same device
        used[name] = room.held or 0
    return dict(+used)


def _use_of(nodes: Sequence[NodeStatus]) -> str:
    """Return how many GPUs of each node pods hold, from the least to the most; of parts of GPUs, by resource."""
    used = [found for found in map(used_on, nodes) if found is not None]
    if not used:
        return NOT_KNOWN
    told = []
    for name in sorted({name for each in used for name in each}):
        least, most = (pick(each.get(name, 0) for each in used) for pick in (min, max))
        number = f"{least} to {most}" if least != most else str(most)
        is_whole = name == (WHOLE if nodes[0].plugin is None else nodes[0].plugin.resource)
        told.append(number if is_whole else f"{number} {name.removeprefix('nvidia.com/')}")
    more = [f"{len(told) - _RESOURCES} more"] if len(told) > _RESOURCES else []
    return ", ".join((*told[:_RESOURCES], *more)) or "none"


def in_use_words(node: NodeStatus, reported: Reported) -> str:
    """Return which pods hold GPUs of a node."""
    if reported.users is None:
        return f"{NOT_KNOWN}: {reported.unasked or _NOT_ASKED}"
    told = []
    for user in reported.users:
        devices = only_gpus(user.devices, node.plugin)
        numbers = ", ".join(f"{number} {name.removeprefix('nvidia.com/')}" for name, number in sorted(devices.items()))
        told += [f"{numbers} by {user.pod}"] if devices else []
    return "; ".join(told) or "by no pod that asks for any"


def ways_to_know(node: NodeStatus, cells: Cells) -> Iterator[tuple[str, str]]:
    """Yield what is not known of a node, and what would make it known."""
    unknown, reported, plugin = cells.unknown, node.reported, node.plugin
    if reported is not None and reported.unasked:
        yield IN_USE, reported.unasked
    if reported is not None and reported.unpublished and plugin is not None and plugin.interface.has_claims:
        yield "GPUs for claims", reported.unpublished
    if not unknown:
        return
    if reported is None:
        yield _NOW, _NOBODY_ASKED
    elif reported.daemon is Daemon.SILENT:
        yield ", ".join(unknown), "the node daemon was not heard of for half an hour"
    elif reported.daemon is Daemon.NO_REPORT:
        yield ", ".join(unknown), _why_it_is_mute(plugin)
    else:
        yield from ((name, _ONE_BY_ONE[name]) for name in unknown if name in _ONE_BY_ONE)


def _why_it_is_mute(plugin: Plugin | None) -> str:
    if plugin is not None and plugin.daemon is DaemonAs.DAEMON_SET:
        return "the node daemon does not report to its Node: nodeDaemon.kubernetesApi of the chart lets it"
    is_declared = plugin is not None and plugin.kubernetes_api is not None
    return "the node daemon has never reported" if is_declared else _NOT_DECLARED


_ONE_BY_ONE: Final = {
    "driver": "the node daemon has not spoken since the last upgrade began",
    "module": "the node daemon says it by a label, where it sets labels and the driver answers (plugin.labels)",
    "engine": "the kubelet does not say",
    "GPUs": "the kubelet does not report",
    "drift": "the node has not compared itself yet: grapnel-drift.timer does, after an apply",
}
