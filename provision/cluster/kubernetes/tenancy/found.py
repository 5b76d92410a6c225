"""Reads objects of tenancy as a cluster has them: what is in them, and whose they are.

Each stack applies under a field manager of its own, so that the API server itself knows what two of them share, and
refuses what they declare differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.base.decoding import decoder_of
from provision.planning.render.cluster_object import TENANCY_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.planning.render.cluster_object import ClusterObject, ObjectKind

MANAGER: Final = "grapnel-tenancy."
_ASIDE: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_SHORT: Final = ("spec.", "hard.", "requests.")


class _Managed(msgspec.Struct, frozen=True, kw_only=True):
    manager: str = ""
    operation: str = ""


class _FoundMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None
    managed_fields: tuple[_Managed, ...] = ()


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _FoundMetadata


class Found:
    """An object as the API server has it. ``raw`` is its JSON; raises msgspec's errors where it is no object."""

    def __init__(self, kind: ObjectKind, raw: bytes) -> None:
        self.kind = kind
        self._metadata = decoder_of(_Head).decode(raw).metadata
        document: dict[str, Any] = msgspec.json.decode(raw)
        self.content: Mapping[str, Any] = {key: each for key, each in document.items() if key not in _ASIDE}

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from all others."""
        return (self.kind.plural, self._metadata.namespace, self._metadata.name)

    @property
    def path(self) -> str:
        """Where it is in the API."""
        return self.kind.path(self._metadata.namespace, self._metadata.name)

    @property
    def uid(self) -> str:
        """What no later object of its name has."""
        return self._metadata.uid

    @property
    def is_going(self) -> bool:
        """Whether it was deleted, and waits for its finalizers."""
        return self._metadata.deletion_timestamp is not None

    @property
    def is_ours(self) -> bool:
        """Whether a grapnel has made it."""
        return TENANCY_LABEL in self._metadata.labels

    @property
    def stacks(self) -> frozenset[str]:
        """The stacks that apply it, by their names."""
        managers = (each.manager for each in self._metadata.managed_fields if each.operation == "Apply")
        return frozenset(each.removeprefix(MANAGER) for each in managers if each.startswith(MANAGER))

    @property
    def owners(self) -> str:
        """Who has set what is in it, in the words of its managed fields."""
        names = dict.fromkeys(each.manager for each in self._metadata.managed_fields if each.manager)
        return ", ".join(who(name) for name in names) or "somebody"

    def differs_in_fixed(self, wanted: ClusterObject) -> bool:
        """Tell whether it has another value of an immutable field."""
        return any(_at(self.content, path) != _at(wanted.content, path) for path in wanted.kind.fixed)


def who(manager: str) -> str:
    """Return what messages call a field manager."""
    return f"stack {manager.removeprefix(MANAGER)}" if manager.startswith(MANAGER) else manager


def manager_of(stack: str) -> str:
    """Return the field manager of a stack."""
    return f"{MANAGER}{stack}"


def title(wanted: ClusterObject | Found) -> str:
    """Return what messages call an object."""
    _plural, namespace, name = wanted.key
    return f"{wanted.kind.kind} {namespace}/{name}" if namespace else f"{wanted.kind.kind} {name}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what changes between two contents, field by field."""
    old, new = dict(_flat(before)), dict(_flat(after))
    found = []
    for path in sorted({*old, *new}):
        if old.get(path) != new.get(path):
            was, now = old.get(path, "nothing"), new.get(path, "nothing")
            found.append(f"{short(path)} {was} → {now}")
    return tuple(found)


def contents(content: Mapping[str, Any]) -> str:
    """Return what is in an object, field by field."""
    return ", ".join(f"{short(path)} {value}" for path, value in _flat(content))


def short(path: str) -> str:
    """Return the path of a field without what is the same for all of its kind."""
    for prefix in _SHORT:
        path = path.removeprefix(".").removeprefix(prefix)
    return path


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, each in sorted(value.items()):
            yield from _flat(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for index, each in enumerate(value):
            yield from _flat(each, f"{path}[{index}]")
    elif isinstance(value, list):
        yield path, ", ".join(map(str, value)) or "nothing"
    else:
        yield path, str(value)


def _at(content: Mapping[str, Any], path: tuple[str, ...]) -> object:
    found: Any = content
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found
