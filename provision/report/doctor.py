"""Renders what is found on the nodes of a fleet: one block for each code, the nodes together that say the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.apply.model import Failure
from provision.base.printable import printable_json
from provision.declaration.fleet.series import in_series
from provision.planning.driver.preflight import Severity
from provision.report.console import Text
from provision.report.planned.alike import failed_alike
from provision.report.terminal import STATUS_STYLES, count, hanging, names

if TYPE_CHECKING:
    from rich.console import RenderableType

    from provision.planning.driver.preflight import Finding

Diagnoses = Mapping[str, "tuple[Finding, ...] | Failure"]
SCHEMA = "grapnel.dev/doctor/v1alpha1"
MESSAGES_SHOWN = 8  # of one code: what differs from node to node, such as a process's number
_INDENT = 2
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "cyan"}


@dataclass
class Block:
    """All nodes with one code: their messages, the most frequent first."""

    code: str
    severity: Severity
    remedy: str
    messages: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def nodes(self) -> list[str]:
        """The nodes that have it, each once."""
        return list(dict.fromkeys(node for nodes in self.messages.values() for node in nodes))

    @property
    def ranked(self) -> list[tuple[str, list[str]]]:
        """Messages with their nodes."""
        return sorted(self.messages.items(), key=lambda entry: -len(entry[1]))


def group(diagnoses: Diagnoses) -> list[Block]:
    """Return findings by code: errors first, then by how many nodes have them."""
    blocks: dict[tuple[str, str], Block] = {}
    for node, diagnosis in diagnoses.items():
        for finding in () if isinstance(diagnosis, Failure) else diagnosis:
            key = (finding.code, finding.remedy)
            block = blocks.setdefault(key, Block(finding.code, finding.severity, finding.remedy))
            block.messages[finding.message].append(node)
    order = list(Severity)
    return sorted(blocks.values(), key=lambda block: (order.index(block.severity), -len(block.nodes), block.code))


def render_diagnoses(diagnoses: Diagnoses) -> Iterator[RenderableType]:
    """Yield a block for each code, the nodes that could not be looked at, and a summary line."""
    for block in group(diagnoses):
        yield from _render_block(block)
        yield ""
    failures = [(node, one) for node, one in diagnoses.items() if isinstance(one, Failure)]
    for failure, nodes in failed_alike(failures):
        title = Text(f"{failure.status.value}: ", STATUS_STYLES[failure.status])
        yield hanging(title, Text(names(in_series(nodes)), "bold cyan"))
        yield hanging(_INDENT, Text(failure.message))
    if failures:
        yield ""
    yield Text(_summary(diagnoses), "bold")


def _render_block(block: Block) -> Iterator[RenderableType]:
    head = (f"{block.severity.value}: ", _STYLES[block.severity])
    yield Text.assemble(head, (block.code, "bold"), (f"  {count(len(block.nodes), 'node')}", "dim"))
    ranked = block.ranked
    for message, nodes in ranked[:MESSAGES_SHOWN]:
        yield hanging(_INDENT, Text(message))
        yield hanging(2 * _INDENT, Text(names(in_series(nodes)), "cyan"))
    rest = ranked[MESSAGES_SHOWN:]
    if rest:
        others = dict.fromkeys(node for _, nodes in rest for node in nodes)
        yield hanging(_INDENT, Text(f"and the same with other words on {count(len(others), 'node')}", "dim"))
    if block.remedy:
        yield hanging(_INDENT, Text.assemble(("remedy: ", "green"), block.remedy))


def _summary(diagnoses: Diagnoses) -> str:
    worst = {
        node: min((list(Severity).index(one.severity) for one in diagnosis), default=len(Severity))
        for node, diagnosis in diagnoses.items()
        if not isinstance(diagnosis, Failure)
    }
    words = ("with errors", "with warnings", "with nothing but notes", "without findings")
    parts = [f"{number} {words[rank]}" for rank in range(len(words)) if (number := list(worst.values()).count(rank))]
    if unknown := len(diagnoses) - len(worst):
        parts.append(f"{unknown} without facts")
    return f"{count(len(diagnoses), 'node')}: {', '.join(parts)}"


def doctor_document(diagnoses: Diagnoses) -> str:
    """Return ``{"schema", "findings": [{code, severity, remedy, cases: [{message, nodes}]}], "failures": [...]}``."""
    failures = [
        {"node": node, "status": one.status.value, "task": one.task, "message": one.message}
        for node, one in diagnoses.items()
        if isinstance(one, Failure)
    ]
    found = [
        {
            "code": block.code,
            "severity": block.severity.value,
            "remedy": block.remedy,
            "cases": [{"message": message, "nodes": nodes} for message, nodes in block.ranked],
        }
        for block in group(diagnoses)
    ]
    return printable_json({"schema": SCHEMA, "nodes": list(diagnoses), "findings": found, "failures": failures})
