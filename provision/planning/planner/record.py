"""Plans the record of what `apply` brings about, with which a timer on the node compares it.

The record is a file of the daemon's role, written after everything that it names. As long as something has to wait for
another pass, so has the record: it says what was brought about, not what is wished for.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec

from provision.planning.node_plan import FileContent, NodeDaemonVariables, Role
from provision.planning.planner.drivers.holders import DAEMON_UNIT
from provision.planning.planner.part import Part, plan_files, timers_of
from provision.planning.render.declared import (
    DECLARED_RECORD,
    DeclaredFile,
    DeclaredPackage,
    DeclaredRecord,
    digest_of,
    render_record,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.planner.part import Declared
    from provision.planning.supply.payload.model import Payload


def with_record(
    daemon: Part[NodeDaemonVariables],
    others: Sequence[Part],  # type: ignore[type-arg] # of whichever role
    facts: NodeFacts,
    payload: Payload,
    node: str,
) -> Part[NodeDaemonVariables]:
    """Return the daemon's part with the record, where a timer compares; it is the last thing that is written."""
    parts = (*others, daemon)
    items = [item for part in parts for item in part.items]
    is_compared = daemon.declared.units and timers_of(payload)  # where the daemon is declared
    if not is_compared or any(part.problems for part in parts):
        return daemon
    file = FileContent(DECLARED_RECORD, render_record(_record([part.declared for part in parts], facts, node)))
    writes = plan_files(facts, Role.NODE_DAEMON, (file,))
    if not writes:
        return daemon
    if any(item.deferred for item in items):
        later = (msgspec.structs.replace(item, deferred=True) for item in writes)
        return dataclasses.replace(daemon, items=(*daemon.items, *later))
    is_pod = DAEMON_UNIT not in daemon.declared.units
    variables = daemon.variables or NodeDaemonVariables(node_daemon_enabled=True, node_daemon_as_pod=is_pod)
    variables = msgspec.structs.replace(variables, node_daemon_files=(*variables.node_daemon_files, file))
    return Part((*daemon.items, *writes), (), variables, daemon.warnings, daemon.derived, daemon.declared)


def _record(parts: Sequence[Declared], facts: NodeFacts, node: str) -> DeclaredRecord:
    marks = dict(mark for part in parts for mark in part.marked)
    return DeclaredRecord(
        node=node,
        manager=facts.package_manager.name,  # type: ignore[arg-type] # of a distribution that is known
        packages=tuple(
            DeclaredPackage(name=each.name, version=each.version, hold=part.hold)
            for part in parts
            for each in part.packages
        ),
        files=tuple(
            DeclaredFile(path=each.path, sha256=digest_of(each.content), mode=each.mode, mark=marks.get(each.path, ""))
            for part in parts
            for each in part.files
        ),
        units=tuple(unit for part in parts for unit in part.units),
        module=next((part.module for part in parts if part.module), None),
        software={name: digest for part in parts for name, digest in part.software},
    )
