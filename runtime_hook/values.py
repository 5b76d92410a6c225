"""Frozen values for 0.1 ms: the part of ``dataclasses`` that the hook needs (importing the real one costs 11 ms).

``@value`` takes annotated fields with optional defaults and adds ``__init__``, ``__eq__``, ``__hash__`` and
``__repr__``; assigning to an attribute afterwards fails. Only a class's own fields count: no inheritance of fields.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar, dataclass_transform

    T = TypeVar("T")

    @dataclass_transform(frozen_default=True)
    def value(cls: type[T]) -> type[T]:
        """Tell the type checker what the decorator below does."""
        return cls

else:

    def value(cls):  # noqa: ANN001, ANN201 - the typed form stands above
        """Turn a class with annotated fields into a frozen value."""
        fields = tuple(cls.__annotations__)
        defaults = {name: cls.__dict__[name] for name in fields if name in cls.__dict__}
        cls.__init__ = _initialiser(cls.__name__, fields, defaults)
        cls.__eq__ = lambda self, other: (
            self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented
        )
        cls.__hash__ = lambda self: hash(tuple(self.__dict__.values()))
        cls.__repr__ = _represent
        cls.__setattr__ = _refuse
        cls.__delattr__ = _refuse
        return cls


def _initialiser(name: str, fields: "tuple[str, ...]", defaults: "dict[str, object]") -> "Callable[..., None]":
    def __init__(self: object, *positional: object, **named: object) -> None:  # noqa: N807 - it becomes the method
        if len(positional) == len(fields) and not named:  # most values of an inventory: a third of the time
            self.__dict__.update(zip(fields, positional))  # noqa: B905 - Python 3.9 has no strict=
            return
        if len(positional) > len(fields):
            raise TypeError(f"{name} takes {len(fields)} fields, {len(positional)} were given")
        if len(positional) == len(fields) and not named:  # the common case: the inventory is hundreds of values
            self.__dict__.update(zip(fields, positional))  # noqa: B905 - Python 3.9 has no strict=, the length is checked
            return
        given = dict(zip(fields, positional))  # noqa: B905 - Python 3.9 has no strict=, the length is checked above
        for field in named:
            if field in given or field not in fields:
                raise TypeError(f"{name} got an unexpected or repeated field {field}")
        given.update(named)
        missing = [field for field in fields if field not in given and field not in defaults]
        if missing:
            raise TypeError(f"{name} lacks {', '.join(missing)}")
        self.__dict__.update({field: given.get(field, defaults.get(field)) for field in fields})

    return __init__


def _represent(self: object) -> str:
    inside = ", ".join(f"{name}={item!r}" for name, item in vars(self).items())
    return f"{type(self).__name__}({inside})"


def _refuse(self: object, name: str, *_: object) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")
