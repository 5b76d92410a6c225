"""Says in which keys two declarations differ. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.declaration.spec.text.findings import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import StackSpec
    from provision.declaration.spec.text.findings import KeyPath

ABOUT_THE_WAY: Final = frozenset({"rollout", "scheduler"})  # how nodes are changed: no node is due for these
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """A key below ``spec`` with its values, as they would be written; None where it has none."""

    key: str
    before: object
    after: object
    is_about_machines: bool


def differences_of(before: StackSpec, after: StackSpec) -> tuple[Difference, ...]:
    """Return the keys that differ, in the order of the model; what stands nowhere has its default in both."""
    found = _walk(msgspec.to_builtins(before), msgspec.to_builtins(after), ())
    return tuple(
        Difference(f"spec.{dotted(path)}", one, other, str(path[0]) not in ABOUT_THE_WAY) for path, one, other in found
    )


def _walk(before: Any, after: Any, path: KeyPath) -> Iterator[tuple[KeyPath, object, object]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*before, *(key for key in after if key not in before)):
            yield from _walk(before.get(key, _ABSENT), after.get(key, _ABSENT), (*path, key))
    elif before != after:
        yield path, None if before is _ABSENT else before, None if after is _ABSENT else after
