"""Makes of a spec with errors what is known of it, so that no error hides rules that have nothing to do with it.

A key that is wrong, or whose value may stand elsewhere under a wrong name, has no value at all in the result: a rule
that reads it ends there, and says nothing. Its default would be a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import inspect as model

from provision.base import decoding
from provision.declaration.spec.kinds import fits, unwrap
from provision.declaration.spec.model import StackSpec
from provision.declaration.spec.text.document import UNREADABLE
from provision.declaration.spec.text.findings import KeyPath, dotted
from provision.declaration.spec.validate import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

T = TypeVar("T")
_UNKNOWN: Final = object()


def known_part(
    content: object, wrong: Collection[str], *, prefix: KeyPath, strays: Iterable[str] = ()
) -> StackSpec | None:
    """Return a spec without the keys that are `wrong` (dotted, with `prefix`), None where nothing of it is known.

    `strays` are keys around the spec that are not known there. A field that is missing in the result raises
    AttributeError when it is read (`as_far_as_known`).
    """
    pruning = _Pruning(frozenset(wrong), prefix)
    pruning.strays.update(strays)
    pruned = pruning.prune(content, model.type_info(StackSpec), ())
    if not isinstance(pruned, dict):
        return None
    try:
        spec = decoding.convert(pruned, StackSpec)
    except msgspec.ValidationError:
        return None
    holes = {*pruning.holes, *_homes(pruning.strays, pruned)}
    for path in holes:
        if not any(path[:end] in holes for end in range(1, len(path))):
            _leave_out(spec, path)
    return spec


def as_far_as_known(judge: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Yield what rules say; one that reads a key that is not known ends, and those chained behind it go on."""
    try:
        remarks = iter(judge())
    except AttributeError as error:
        if _is_about_a_hole(error):
            return
        raise
    while True:
        try:
            yield next(remarks)
        except StopIteration:
            return
        except AttributeError as error:  # this generator has ended; itertools.chain has the next one
            if not _is_about_a_hole(error):
                raise


def _is_about_a_hole(error: AttributeError) -> bool:
    """Tell whether a field was read, or a struct with it copied or compared, that has no value."""
    fields = getattr(error.obj, "__struct_fields__", ())
    return error.name in fields or str(error).endswith("is unset")


class _Pruning:
    """Takes away what is wrong, and remembers where."""

    def __init__(self, wrong: frozenset[str], prefix: KeyPath) -> None:
        self.wrong = wrong
        self.prefix = prefix
        self.holes: list[KeyPath] = []
        self.strays: set[str] = set()

    def prune(self, value: object, wrapped: model.Type, path: KeyPath) -> object:
        kind = unwrap(wrapped).type
        if value is UNREADABLE or dotted((*self.prefix, *path)) in self.wrong:
            return _UNKNOWN
        if isinstance(kind, model.UnionType):
            members = (unwrap(each).type for each in kind.types)
            kind = next((each for each in members if fits(value, each)), kind)
        if isinstance(kind, model.StructType):
            return self._prune_section(value, kind, path) if isinstance(value, dict) else _UNKNOWN
        if isinstance(kind, model.VarTupleType) and isinstance(value, list):
            entries = [self.prune(each, kind.item_type, (*path, index)) for index, each in enumerate(value)]
            return _UNKNOWN if any(each is _UNKNOWN for each in entries) else entries
        if isinstance(kind, model.DictType) and isinstance(value, dict):
            named = {key: self.prune(each, kind.value_type, (*path, key)) for key, each in value.items()}
            return _UNKNOWN if any(each is _UNKNOWN for each in named.values()) else named
        return value

    def _prune_section(self, value: dict[str, Any], kind: model.StructType, path: KeyPath) -> object:
        """Return a section, not known without a key that it needs; a key that a stray may mean is not known either."""
        known: dict[str, object] = {}
        names = [each.encode_name for each in kind.fields]
        strays = value.keys() - set(names)
        meant = {nearest(each, names) for each in strays}
        self.strays |= strays
        for each in kind.fields:
            here, given = (*path, each.encode_name), value.get(each.encode_name)
            pruned = _UNKNOWN if given is None and each.encode_name in meant else given
            if given is not None:
                pruned = self.prune(given, each.type, here)
            if pruned is _UNKNOWN or dotted((*self.prefix, *here)) in self.wrong:
                if each.required:
                    return _UNKNOWN
                self.holes.append(here)
            elif pruned is not None:
                known[each.encode_name] = pruned
        return known


def _homes(strays: set[str], known: dict[str, Any]) -> Iterator[KeyPath]:
    """Yield the keys that may be meant by strays: a section, or a key of one; those that are written are known."""
    for section in model.type_info(StackSpec).fields:  # type: ignore[attr-defined]  # a Struct's type_info is a StructType
        name, kind = section.encode_name, unwrap(section.type).type
        if name in strays and name not in known:
            yield (name,)
        for key in strays & {each.encode_name for each in kind.fields}:  # type: ignore[attr-defined]  # so is a section's
            if name not in known:
                yield (name,)
            elif key not in known[name]:
                yield (name, key)


def _leave_out(value: Any, path: KeyPath) -> None:
    """Take the value of a field away. The structs on the way are written out in the text: none is a shared default."""
    for part in path[:-1]:
        value = getattr(value, _field(value, part)) if isinstance(value, msgspec.Struct) else value[part]
    getattr(type(value), _field(value, path[-1])).__delete__(value)


def _field(struct: msgspec.Struct, key: str | int) -> str:
    return struct.__struct_fields__[struct.__struct_encode_fields__.index(str(key))]
