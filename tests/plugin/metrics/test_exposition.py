"""The text format, read back by a reader that takes nothing else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.publication.metrics.exposition import KINDS, Family, Sample, format_value, render
from tests.plugin.metrics.reading import read_page

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,20}", fullmatch=True)
LABEL_NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,20}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
VALUES = st.one_of(st.integers(0, 2**64), st.floats(allow_nan=False))
LABELS = st.dictionaries(LABEL_NAMES, TEXTS, max_size=4).map(lambda labels: tuple(labels.items()))
FAMILIES = st.builds(
    Family,
    NAMES,
    st.sampled_from(KINDS),
    TEXTS,
    st.lists(st.builds(Sample, VALUES, LABELS), min_size=1, max_size=4, unique_by=lambda each: each.labels).map(tuple),
)
PAGES = st.lists(FAMILIES, max_size=5, unique_by=lambda family: family.name)


@pytest.mark.slow
@given(PAGES)
def test_what_is_rendered_is_read_back_the_same(families: list[Family]) -> None:
    page = read_page(render(families))
    assert page.helps == {family.name: family.help for family in families}
    assert page.kinds == {family.name: family.kind for family in families}
    assert page.samples == {
        (family.name, sample.labels): float(sample.value) for family in families for sample in family.samples
    }


@pytest.mark.slow
@given(PAGES, st.randoms(use_true_random=False))
def test_the_order_of_families_does_not_change_the_page(families: list[Family], random: object) -> None:
    shuffled = list(families)
    random.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis gives a random.Random
    assert render(shuffled) == render(families)


def test_a_page_looks_as_prometheus_documents_it() -> None:
    families = [
        Family("b_total", "counter", "Second.", (Sample(2, (("a", '\\ " \n'), ("b", ""))),)),
        Family("a", "gauge", "First\\\nline.", (Sample(0.5),)),
        Family("c", "gauge", "Nothing was measured."),
    ]
    assert render(families).decode() == (
        "# HELP a First\\\\\\nline.\n"
        "# TYPE a gauge\n"
        "a 0.5\n"
        "# HELP b_total Second.\n"
        "# TYPE b_total counter\n"
        'b_total{a="\\\\ \\" \\n",b=""} 2\n'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(0, "0", id="zero"),
        pytest.param(2**64, "18446744073709551616", id="a whole number of any size"),
        pytest.param(100.0, "100", id="a whole float"),
        pytest.param(118.344, "118.344", id="a fraction"),
        pytest.param(0.0005, "0.0005", id="a small fraction"),
        pytest.param(1e300, "1e+300", id="a float beyond whole numbers"),
        pytest.param(math.inf, "+Inf", id="infinity"),
        pytest.param(-math.inf, "-Inf", id="minus infinity"),
        pytest.param(math.nan, "NaN", id="not a number"),
    ],
)
def test_numbers_are_written_with_every_digit(value: float, text: str) -> None:
    assert format_value(value) == text


def test_text_that_is_no_unicode_does_not_break_the_page() -> None:
    page = read_page(render([Family("a", "gauge", "h", (Sample(1, (("pod", "\udcff"),)),))]))
    assert page.samples == {("a", (("pod", "?"),)): 1}


@pytest.mark.parametrize(
    ("name", "kind", "label"),
    [
        pytest.param("0a", "gauge", "l", id="a name that starts with a digit"),
        pytest.param("a b", "gauge", "l", id="a name with a blank"),
        pytest.param("a\n", "gauge", "l", id="a name that ends a line"),
        pytest.param("a", "speed", "l", id="an invalid kind"),
        pytest.param("a", "gauge", "l-m", id="a label with a hyphen"),
        pytest.param("a", "gauge", "__name__", id="a label that is Prometheus' own"),
    ],
)
def test_names_that_the_format_does_not_have_are_refused(name: str, kind: str, label: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        render([Family(name, kind, "h", (Sample(1, ((label, "v"),)),))])
