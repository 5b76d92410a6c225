"""Checks rules across the keys of a rollout's gates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from provision.declaration.spec.model import Expect, Holds
from provision.declaration.spec.rules.remark import error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import QueryGate, Rollout
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

GATES: Final[KeyPath] = ("rollout", "gates")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_TEXT_OF_QUERY: Final = re.compile(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'|`[^`]*`|#.*')
_BOOL: Final = re.compile(r"\bbool\b")


def judge_gates(rollout: Rollout) -> Iterator[Remark]:
    """Yield every rule that is not kept."""
    seen: dict[str, int] = {}
    for index, gate in enumerate(rollout.gates):
        path = (*GATES, index)
        if gate.name in seen:
            yield error((*path, "name"), f"gate {seen[gate.name] + 1} is named '{gate.name}', too", "name it otherwise")
        seen.setdefault(gate.name, index)
        if gate.holds is Holds.WAVES and not rollout.waves:
            yield error((*path, "holds"), "there are no waves to hold", "declare rollout.waves, or holds: nodes")
        yield from _query(gate, path)
        url = urlsplit(gate.prometheus)
        if gate.token_file is not None and url.scheme == "http" and url.hostname not in _LOOPBACK:
            yield error((*path, "tokenFile"), "the token could be read on its way to prometheus", "write https://")


def _query(gate: QueryGate, path: KeyPath) -> Iterator[Remark]:
    """Yield that a query returns a sample whatever is true, so that its gate would say nothing."""
    if _BOOL.search(_TEXT_OF_QUERY.sub("", gate.query)):
        always = "never" if gate.expect is Expect.NOTHING else "always"
        message = f"a comparison with bool returns a sample also where it is false: the gate would {always} be open"
        yield error((*path, "query"), message, "leave bool out")
