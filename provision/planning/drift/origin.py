"""Says who or what made a difference, and when, as far as the node's own records (`fleet.traces`) tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.planning.drift.model import DriftKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.fleet.facts.traces import FileTrace, PackageTrace, Traces
    from provision.planning.drift.model import Difference, Subject

_DONE: Final[Mapping[str, str]] = {"install": "installed", "upgrade": "changed", "remove": "removed"}
_LOCKS: Final = ("/etc/dnf/plugins/versionlock.list", "/etc/zypp/locks")  # where rpm's package managers keep holds
_STANDING: Final = frozenset({"failed", "inactive", "active", "activating", "deactivating"})
_SAME_S: Final = 2  # what a careful writer needs between writing a file and giving it its name


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """How something came to differ, without the time, so that it is equal on nodes that were treated alike.

    ``time`` is in seconds since 1970.
    """

    says: str
    time: int


def origins(difference: Difference, facts: NodeFacts) -> tuple[Origin, ...]:
    """Return what is known about a node's difference, each once with the latest of its times; empty: nothing is."""
    if facts.traces is None:
        return ()
    latest: dict[str, int] = {}
    for origin in _origins(difference, facts, facts.traces):
        latest[origin.says] = max(origin.time, latest.get(origin.says, 0))
    return tuple(Origin(says, time) for says, time in latest.items())


def _origins(difference: Difference, facts: NodeFacts, traces: Traces) -> Iterator[Origin]:
    if difference.kind is DriftKind.HOLD:
        for path in _LOCKS:
            yield from _of_file(traces, path, f"{path} ")
        return
    for subject in difference.subjects:
        match difference.kind:
            case DriftKind.VERSION:
                yield from _of_package(subject, facts, traces)
            case DriftKind.FILE:
                yield from _of_file(traces, subject.name)
            case DriftKind.SOFTWARE:
                yield from _of_file(traces, f"/usr/lib/grapnel/{subject.name}/RELEASE")
            case DriftKind.SERVICE:
                yield from _of_service(subject, traces)


def _of_package(subject: Subject, facts: NodeFacts, traces: Traces) -> Iterator[Origin]:
    """Yield the last change of a package, unless it does not lead to what is installed: then the log is not all."""
    trace = traces.packages.get(subject.name)
    installed = facts.packages.get(subject.name)
    if trace is not None and trace.version == (installed.version if installed else ""):
        yield Origin(f"{_DONE.get(trace.action, trace.action)} by {_who(trace)}", trace.time)


def _who(trace: PackageTrace) -> str:
    command = f"`{trace.command}`" if trace.command else "a program that left no name in the package manager's log"
    return f"{command} of {trace.user}" if trace.user else command


def _of_file(traces: Traces, path: str, name: str = "") -> Iterator[Origin]:
    trace = traces.files.get(path)
    if trace is None:
        return
    if trace.written is not None:
        yield Origin(f"{name}written", trace.written)
        yield from _changed_since(trace, trace.written, name)
    elif trace.folder is not None and not name:
        yield Origin("something was last added to its folder, or removed from it", trace.folder)


def _changed_since(trace: FileTrace, written: int, name: str) -> Iterator[Origin]:
    if trace.changed is not None and trace.changed - written > _SAME_S:
        yield Origin(f"{name}moved there, or mode or owner changed", trace.changed)


def _of_service(subject: Subject, traces: Traces) -> Iterator[Origin]:
    trace = traces.services.get(subject.name)
    if trace is None or subject.found not in _STANDING:
        return
    ended = f" (its last run ended with {trace.result})" if trace.result not in {"", "success"} else ""
    yield Origin(f"{subject.found}{ended}", trace.since)
