"""A tree is written as TOML and means the same when it is read again."""

from __future__ import annotations

import tomllib
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.planning.engines.files.mark import Origin, origin_of
from provision.planning.engines.files.toml_text import render_toml

LEAVES = (
    st.text(max_size=6)
    | st.integers()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.datetimes(timezones=st.none() | st.just(UTC))
    | st.dates()
    | st.times()
)
TREES = st.dictionaries(
    st.text(max_size=4),
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner), max_leaves=8
    ),
)


@pytest.mark.slow
@given(tree=TREES)
def test_any_tree_is_read_as_it_was_written(tree: dict[str, Any]) -> None:
    assert tomllib.loads(render_toml(tree)) == tree


def test_a_file_begins_with_its_mark() -> None:
    text = render_toml({"a": 1, "b": {"c": {"d e": "x\x7f\n"}, "f": {}}})

    assert origin_of(text) is Origin.OURS
    assert text.split("\n", 2)[2] == 'a = 1\n\n[b.c]\n"d e" = "x\\u007f\\n"\n\n[b.f]\n'
