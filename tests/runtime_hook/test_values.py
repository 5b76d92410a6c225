"""The affordable part of dataclasses behaves as the real one does, in all that the hook uses of it."""

from __future__ import annotations

import dataclasses

import pytest

from runtime_hook.base.values import value


@value
class Ours:
    name: str
    size: int = 3


@dataclasses.dataclass(frozen=True)
class Real:
    name: str
    size: int = 3


@pytest.mark.parametrize(
    ("positional", "named"), [(("a",), {}), (("a", 4), {}), ((), {"size": 5, "name": "b"}), (("a",), {"size": 0})]
)
def test_fields_defaults_and_representation(positional: tuple[str, ...], named: dict[str, int]) -> None:
    ours, real = Ours(*positional, **named), Real(*positional, **named)  # type: ignore[arg-type] # a table's mixture
    assert vars(ours) == vars(real)
    assert repr(ours).removeprefix("Ours") == repr(real).removeprefix("Real")


@pytest.mark.parametrize(
    ("positional", "named"), [((), {}), (("a", 1, 2), {}), (("a",), {"name": "b"}), (("a",), {"other": 1})]
)
def test_wrong_fields_are_a_type_error(positional: tuple[str, ...], named: dict[str, str]) -> None:
    for kind in (Ours, Real):
        with pytest.raises(TypeError):
            kind(*positional, **named)  # type: ignore[arg-type] # wrong on purpose


def test_values_are_equal_by_content_and_of_one_type_only() -> None:
    assert Ours("a") == Ours("a", 3)
    assert hash(Ours("a")) == hash(Ours("a", 3))
    assert Ours("a") != Ours("b")
    other: object = Real("a")
    assert Ours("a") != other


def test_values_do_not_change() -> None:
    made = Ours("a")
    with pytest.raises(AttributeError):
        made.name = "b"  # type: ignore[misc] # frozen
    with pytest.raises(AttributeError):
        del made.size
