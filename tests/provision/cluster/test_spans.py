"""Many names in few words, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.cluster.progress import collapse, expand

NAMES = st.one_of(
    # No machine's name has two dots in a row; one that is read as a span would use up the limit below.
    st.text(alphabet="ab0129.-", min_size=1, max_size=8).filter(lambda name: ".." not in name),
    st.builds("n{:03}".format, st.integers(0, 1500)),
    st.builds("gpu{}.rack".format, st.integers(0, 30)),
)


@pytest.mark.parametrize(
    ("names", "spans"),
    [
        (["n3", "n1", "n2"], ["n1..n3"]),
        (["n1", "n2"], ["n1", "n2"]),
        (["gpu098", "gpu099", "gpu100"], ["gpu098..gpu100"]),
        (["n9", "n10", "n11"], ["n9..n11"]),
        (["a1.x", "a2.x", "a3.x", "a4.y"], ["a1.x..a3.x", "a4.y"]),
        (["web"], ["web"]),
        ([], []),
    ],
    ids=["counted up", "two", "with zeros", "a digit more", "another domain", "no number", "none"],
)
def test_names_in_a_row_are_one_span(names: list[str], spans: list[str]) -> None:
    assert collapse(names) == spans
    assert sorted(expand(spans, 100)) == sorted(names)


@given(st.sets(NAMES, max_size=60))
def test_every_name_comes_back(names: set[str]) -> None:
    assert set(expand(collapse(names), 10_000)) == names


@pytest.mark.parametrize("span", ["a..b", "n1..m3", "n3..n1", "..", "n1..", "n1.x..n3.y"])
def test_what_is_no_span_is_a_name(span: str) -> None:
    assert list(expand([span], 100)) == [span]


def test_a_span_that_is_too_long_is_cut() -> None:
    assert len(list(expand(["n0..n999999999", "n0..n999999999"], 1000))) == 1000
