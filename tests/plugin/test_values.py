"""Values behave as frozen dataclasses do: every case is put to both."""

from __future__ import annotations

import dataclasses
import pickle
import typing
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from plugin import values
from plugin.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MAKERS = [
    pytest.param(values.dataclass(frozen=True), id="ours"),
    pytest.param(dataclasses.dataclass(frozen=True), id="the standard library's"),
]


def gpu_class(make: Callable[[type], type]) -> Any:  # noqa: ANN401 - a class made by either
    class Gpu:
        """A class with every kind of field that the daemon has."""

        uuid: str
        index: int = 0
        mig: tuple[str, ...] = ()
        tags: list[str] = field(default_factory=list)
        origin: str = field(default="", compare=False)

        @property
        def is_cut(self) -> bool:
            return bool(self.mig)

    return make(Gpu)


@pytest.fixture(params=MAKERS)
def gpu(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401 - a class made by either
    return gpu_class(request.param)


def test_fields_are_given_by_place_or_by_name(gpu: Any) -> None:  # noqa: ANN401
    assert gpu("GPU-1", 2, ("MIG-1",)) == gpu(mig=("MIG-1",), index=2, uuid="GPU-1")
    assert gpu("GPU-1", index=2).index == 2
    assert gpu("GPU-1", mig=("MIG-1",)).is_cut


def test_a_default_is_used_where_nothing_is_given(gpu: Any) -> None:  # noqa: ANN401
    one, other = gpu("GPU-1"), gpu("GPU-2")
    assert (one.index, one.mig, one.tags, one.origin) == (0, (), [], "")
    assert one.tags is not other.tags


@pytest.mark.parametrize(
    ("places", "names"),
    [
        pytest.param((), {}, id="a field without default is missing"),
        pytest.param((), {"index": 1}, id="it is missing though others are named"),
        pytest.param(("GPU-1", 0, (), [], "", ""), {}, id="one too many"),
        pytest.param(("GPU-1",), {"uuid": "GPU-2"}, id="one given twice"),
        pytest.param(("GPU-1",), {"colour": "green"}, id="a name that is no field"),
        pytest.param(("GPU-1", 0, (), [], ""), {"colour": "green"}, id="such a name beside all of them"),
    ],
)
def test_wrong_arguments_are_refused(gpu: Any, places: tuple[Any, ...], names: dict[str, Any]) -> None:  # noqa: ANN401
    with pytest.raises(TypeError):
        gpu(*places, **names)


@pytest.mark.parametrize("make", MAKERS)
def test_a_function_as_default_is_no_method(make: Callable[[type], type]) -> None:
    class Limits:
        """How long to go on."""

        steps: int
        is_late: Callable[[], bool] = lambda: False

    limits: Any = make(Limits)
    assert not limits(1).is_late()


def test_a_value_cannot_be_changed(gpu: Any) -> None:  # noqa: ANN401
    one = gpu("GPU-1")
    with pytest.raises(FrozenInstanceError):
        one.index = 1
    with pytest.raises(FrozenInstanceError):
        del one.uuid
    assert one == gpu("GPU-1")


def test_equality_is_of_the_fields_that_are_compared(gpu: Any) -> None:  # noqa: ANN401
    assert gpu("GPU-1", origin="file") == gpu("GPU-1", origin="flag")
    assert gpu("GPU-1") != gpu("GPU-1", 1)
    assert gpu("GPU-1") != "GPU-1"


def test_a_value_of_another_class_is_another_one(gpu: Any) -> None:  # noqa: ANN401
    assert gpu("GPU-1") != gpu_class(values.dataclass(frozen=True))("GPU-1")


def test_equal_values_have_one_hash(gpu: Any) -> None:  # noqa: ANN401
    assert hash(gpu("GPU-1", tags=(), origin="file")) == hash(gpu("GPU-1", tags=()))
    with pytest.raises(TypeError):
        hash(gpu("GPU-1", tags=[]))


def test_the_standard_functions_know_a_value(gpu: Any) -> None:  # noqa: ANN401
    one = gpu("GPU-1", tags=["new"])
    assert [each.name for each in fields(one)] == ["uuid", "index", "mig", "tags", "origin"]
    assert replace(one, index=3) == gpu("GPU-1", 3, tags=["new"])
    assert asdict(one) == {"uuid": "GPU-1", "index": 0, "mig": (), "tags": ["new"], "origin": ""}


def test_a_value_shows_all_of_itself(gpu: Any) -> None:  # noqa: ANN401
    shown = "Gpu(uuid='GPU-1', index=0, mig=(), tags=[], origin='')"
    assert repr(gpu("GPU-1")).endswith(shown)


@pytest.mark.parametrize("make", MAKERS)
def test_a_class_keeps_what_it_says_itself(make: Callable[[type], type]) -> None:
    class Checked:
        """A class that looks at what it is given, and has words of its own."""

        index: int

        def __post_init__(self) -> None:
            if self.index < 0:
                raise ValueError("negative")

        def __repr__(self) -> str:
            return "words of its own"

    checked: Any = make(Checked)
    with pytest.raises(ValueError, match="negative"):
        checked(-1)
    assert repr(checked(1)) == "words of its own"


@pytest.mark.parametrize("make", MAKERS)
def test_a_class_without_fields_is_a_value_too(make: Callable[[type], type]) -> None:
    class Nothing:
        """No fields."""

    nothing: Any = make(Nothing)
    assert nothing() == nothing()
    assert hash(nothing()) == hash(nothing())
    with pytest.raises(TypeError):
        nothing(1)


def test_what_can_be_changed_is_not_made_here() -> None:
    with pytest.raises(TypeError, match="standard library"):
        values.dataclass(frozen=False)


class Pair(NamedTuple):
    """Two places."""

    first: int
    second: str = "none"

    @property
    def both(self) -> str:
        return f"{self.first} and {self.second}"


class Standard(typing.NamedTuple):
    """Two places."""

    first: int
    second: str = "none"


@pytest.mark.parametrize("kind", [Pair, Standard], ids=["ours", "the one of typing"])
def test_named_tuples_are_those_of_typing(kind: type[typing.Any]) -> None:
    value = kind(1)

    assert value == (1, "none")
    assert isinstance(value, tuple)
    assert value._replace(second="b") == kind(1, "b")
    assert kind._fields == ("first", "second")
    assert kind._field_defaults == {"second": "none"}
    assert hash(value) == hash((1, "none"))
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own
    assert (kind.__name__, kind.__qualname__, kind.__module__) == (kind.__qualname__, kind.__name__, __name__)
    assert kind.__doc__ == "Two places."
    assert repr(value) == f"{kind.__name__}(first=1, second='none')"
    with pytest.raises(TypeError):
        kind()
    with pytest.raises(AttributeError):
        value.first = 2


def test_named_tuples_have_methods() -> None:
    assert Pair(1).both == "1 and none"


def test_a_default_before_a_place_without_one_is_refused() -> None:
    text = "class Wrong(NamedTuple):\n    first: int = 1\n    second: int"
    with pytest.raises(TypeError, match="default"):
        exec(text, {"NamedTuple": NamedTuple, "__name__": __name__})  # noqa: S102 - mypy would refuse it as a class
