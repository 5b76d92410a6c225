"""Writes and reads the result of a comparison (contract `docs/contracts/node-drift`). Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from plugin.base.documents import list_of, member, optional, read_versioned, text, whole
from plugin.drift.model import Difference, DriftKind

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "grapnel.dev/node-drift/v1alpha1"
MAX_BYTES = 4 << 20
_MAX_DIFFERENCES = 10_000
_MAX_WORDS = 4096


class Verdict(Enum):
    """How a comparison ended."""

    AS_DECLARED = "as-declared"
    DRIFTED = "drifted"
    NOT_COMPARED = "not-compared"


@dataclass(frozen=True)
class Result:
    """What came of a comparison `at` seconds since 1970; `reason` is why there was none, else ""."""

    at: int
    differences: tuple[Difference, ...] = ()
    reason: str = ""

    @property
    def verdict(self) -> Verdict:
        """How it ended."""
        if self.reason:
            return Verdict.NOT_COMPARED
        return Verdict.DRIFTED if self.differences else Verdict.AS_DECLARED

    def counts(self) -> Mapping[DriftKind, int]:
        """Return the number of differences of every kind, those without one included."""
        return {kind: sum(each.kind is kind for each in self.differences) for kind in DriftKind}


def render_result(result: Result) -> str:
    """Return the text of a result."""
    document = {
        "schema": SCHEMA,
        "at": result.at,
        "state": result.verdict.value,
        "reason": result.reason,
        "differences": [_render(each) for each in result.differences],
    }
    return json.dumps(document, indent=1) + "\n"


def _render(difference: Difference) -> dict[str, Any]:
    return {
        "kind": difference.kind.value,
        "name": difference.name,
        "found": difference.found,
        "declared": difference.declared,
        "since": difference.since,
        "mend": difference.mend,
    }


def parse_result(content: bytes) -> Result:
    """Return what a text says; raises ValueError. A kind of a later version is left out."""
    document = read_versioned(content, MAX_BYTES, SCHEMA)
    rows = member(document, "differences", list_of(_difference, _MAX_DIFFERENCES))
    result = Result(
        at=member(document, "at", whole()),
        differences=tuple(row for row in rows if row is not None),
        reason=member(document, "reason", text(_MAX_WORDS)),
    )
    said = member(document, "state", text(32))
    if said == Verdict.NOT_COMPARED.value and not result.reason:
        raise ValueError("state is not-compared, and there is no reason")
    return result


def _difference(value: object) -> Difference | None:
    kind = member(value, "kind", text(32))
    words = [member(value, key, text(_MAX_WORDS)) for key in ("name", "found", "declared")]
    since, mend = member(value, "since", optional(whole())), member(value, "mend", text(_MAX_WORDS))
    if kind not in {each.value for each in DriftKind}:
        return None
    return Difference(DriftKind(kind), words[0], words[1], words[2], since, mend)
