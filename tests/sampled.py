"""Parts what is tried many times alike between `make test` and `make long`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def every_second(values: Sequence[object] | Mapping[str, object]) -> list[object]:
    """Return all as parameters of a test, every second one for `make long` alone; the keys of a mapping are its ids."""
    named = [(str(key), each) for key, each in values.items()] if hasattr(values, "items") else None
    given = [pytest.param(each, id=name) for name, each in named] if named else [pytest.param(each) for each in values]
    return [
        pytest.param(*each.values, id=each.id, marks=pytest.mark.long) if at % 2 else each
        for at, each in enumerate(given)
    ]
