"""Renders how a fleet differs from its declaration as JSON; the contract is ``docs/contracts/drift``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from provision.base.printable import printable_json
from provision.planning.drift import DriftKind
from provision.planning.node_plan import Disruption, Role
from provision.report.mending import mending

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from provision.apply.model import Failure
    from provision.planning.drift import Case, Comparison

Time = Annotated[datetime, msgspec.Meta(tz=True)]
SCHEMA: Final = "grapnel.dev/drift/v1alpha1"


class SubjectDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What differs. Null: there is no such version or state, or it says nothing that the reason does not."""

    name: str
    found: str | None
    declared: str | None


class OriginDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the records of a node tell of how it came to differ."""

    node: str
    says: str
    time: Time


class DifferenceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A difference with the nodes that have it. ``disruption`` is the most that ``mend`` costs one of them."""

    kind: DriftKind
    role: Role
    reason: str
    subjects: tuple[SubjectDocument, ...]
    nodes: tuple[str, ...]
    origins: tuple[OriginDocument, ...]
    disruption: Disruption
    mend: str


class UnknownDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node could not be compared as a whole. ``code`` is a problem's, or how its facts failed."""

    node: str
    code: str
    message: str
    hint: str


class DriftDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A fleet beside its declaration; every node is in one of the three lists."""

    schema: Literal["grapnel.dev/drift/v1alpha1"]
    as_declared: tuple[str, ...]
    drifted: tuple[str, ...]
    unknown: tuple[UnknownDocument, ...]
    differences: tuple[DifferenceDocument, ...]


def drift_document(seen: Comparison, failures: Mapping[str, Failure], apply: Sequence[str]) -> str:
    """Return it as JSON; ``apply`` are the words of the command that mends the whole fleet."""
    problems = (
        UnknownDocument(node=node, code=one.code, message=one.message, hint=one.hint)
        for node, of_node in seen.problems.items()
        for one in of_node
    )
    document = DriftDocument(
        schema=SCHEMA,
        as_declared=seen.as_declared,
        drifted=seen.drifted,
        unknown=(*_failures(failures), *problems),
        differences=tuple(_difference(case, apply) for case in seen.cases),
    )
    return printable_json(msgspec.to_builtins(document))


def _failures(failures: Mapping[str, Failure]) -> Iterator[UnknownDocument]:
    for node, one in failures.items():
        yield UnknownDocument(node=node, code=one.status.value, message=one.message, hint="")


def _difference(case: Case, apply: Sequence[str]) -> DifferenceDocument:
    one = case.difference
    return DifferenceDocument(
        kind=one.kind,
        role=one.role,
        reason=one.reason,
        subjects=tuple(SubjectDocument(name=s.name, found=s.found, declared=s.declared) for s in one.subjects),
        nodes=case.nodes,
        origins=tuple(
            OriginDocument(node=node, says=origin.says, time=datetime.fromtimestamp(origin.time, UTC))
            for node, origins in case.origins.items()
            for origin in origins
        ),
        disruption=case.disruption,
        mend=mending(apply, case.nodes, is_whole=True, force=case.needs_force),
    )
