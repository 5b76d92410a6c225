"""Frozen values for a fraction of what `dataclasses` and `typing` take to make a class (0.6 ms, and there are 120).

`dataclass(frozen=True)` from here is the one of the standard library for type checkers, for readers, and for
`fields`, `replace` and `asdict`. Its methods are closures instead of compiled text. Everything else that
`dataclasses` can do (order, slots, values that change) is to be had there.

`NamedTuple` is the one of `typing` for type checkers and readers. That one compiles the text of every annotation.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - this form is what passes a name on
    from typing import Any
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - the same
else:

    class _Tuples(type):
        """Makes a tuple with names of each class that has annotations."""

        def __new__(mcs, name, bases, content):  # noqa: ANN001, ANN204 - see above
            if not bases:
                return super().__new__(mcs, name, bases, content)
            names = tuple(content.get("__annotations__", ()))
            with_default = tuple(each for each in names if each in content)
            if names[len(names) - len(with_default) :] != with_default:
                raise TypeError(f"{name}: a place without a default follows one with it")
            defaults = [content.pop(each) for each in with_default]
            made = namedtuple(name, names, defaults=defaults, module=content["__module__"])  # noqa: PYI024 - its typed form stands above
            for key, each in content.items():
                if key not in {"__module__", "__qualname__"}:
                    setattr(made, key, each)
            made.__qualname__ = content["__qualname__"]
            return made

    class NamedTuple(metaclass=_Tuples):
        """A tuple with names for its places: annotations, with defaults for the last ones if any."""

    def dataclass(*, frozen):  # noqa: ANN001, ANN201 - the typed form stands above
        """Return the decorator; `frozen` is there to be read, and must be true."""
        if not frozen:
            raise TypeError("a value that can be changed is a dataclass of the standard library")
        return _make_value


def _make_value(cls: type[Any]) -> type[Any]:
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)  # finds the fields, compiles nothing
    fields = dataclasses.fields(cls)
    compared = [each.name for each in fields if each.compare]
    content = attrgetter(*compared) if compared else lambda _: ()
    methods = {
        "__init__": _initialiser(cls, fields),
        "__eq__": lambda self, other: (
            content(self) == content(other) if other.__class__ is self.__class__ else NotImplemented
        ),
        "__hash__": lambda self: hash((cls.__qualname__, content(self))),
        "__repr__": _represent,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    return cls


def _initialiser(cls: type[Any], fields: Sequence[dataclasses.Field[Any]]) -> Callable[..., None]:
    names = tuple(each.name for each in fields)
    known = frozenset(names)
    defaults = {each.name: each.default for each in fields if each.default is not dataclasses.MISSING}
    factories = {each.name: each.default_factory for each in fields if each.default_factory is not dataclasses.MISSING}
    required = [name for name in names if name not in defaults and name not in factories]
    finish = getattr(cls, "__post_init__", None)

    def __init__(self: object, *positional: object, **named: object) -> None:  # noqa: N807 - it becomes the method
        content = self.__dict__
        content.update(zip(names, positional))  # noqa: B905 - the length is checked below
        content.update(named)
        if len(content) != len(positional) + len(named) or not known.issuperset(named):
            raise TypeError(f"{cls.__name__} has the fields {', '.join(names)}: too many were given, or one twice")
        if len(content) < len(names):
            for name in required:
                if name not in content:
                    raise TypeError(f"{cls.__name__} lacks {name}")
            content.update({name: each for name, each in defaults.items() if name not in content})
            content.update({name: make() for name, make in factories.items() if name not in content})
        if finish is not None:
            finish(self)

    return __init__


def _represent(self: Any) -> str:  # noqa: ANN401 - a value of any class
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse(self: object, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed")
