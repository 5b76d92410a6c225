"""The contract of memory units: samples, what is written, and what the kubelet's ids come to."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.gpushare.books.model import RESOURCE, Card, Holding, Report
from plugin.gpushare.books.report import holdings_of, parse_report, render_report
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer

CONTRACT = Path(__file__).parents[4] / "docs/contracts/memory-units"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())
NAMES = st.text("abc-", min_size=1, max_size=5)


@pytest.mark.parametrize("path", sorted(CONTRACT.glob("good/*")), ids=lambda path: path.stem)
def test_good_samples_are_read_and_written_again_as_they_are(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    report = parse_report(path.read_text())
    assert json.loads(render_report(report)) == json.loads(path.read_text())


@pytest.mark.parametrize("path", sorted(CONTRACT.glob("bad/*")), ids=lambda path: path.stem)
def test_bad_samples_are_refused_by_both(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    with pytest.raises(ValueError, match=r"is|must"):
        parse_report(path.read_text())


def test_there_are_samples_of_both_kinds() -> None:
    assert len(list(CONTRACT.glob("good/*"))) >= 3
    assert len(list(CONTRACT.glob("bad/*"))) >= 5


def test_a_card_that_is_named_twice_is_refused() -> None:
    twice = Report(RESOURCE, 1, (Card("GPU-a", 0, 1), Card("GPU-a", 1, 1)))
    with pytest.raises(ValueError, match="a card is named twice"):
        parse_report(render_report(twice))


def test_units_of_a_card_that_is_not_offered_any_more_do_not_count() -> None:
    report = Report(RESOURCE, 1, (), 5, (Holding("d", "p", "c", "GPU-gone", 2),))
    assert parse_report(render_report(report)).holdings == ()


@given(
    st.lists(st.integers(0, 99), max_size=4),
    st.lists(st.tuples(NAMES, NAMES, NAMES, st.integers(0, 3), st.integers(1, 99)), max_size=6),
)
def test_what_is_written_is_read_and_has_the_schemas_shape(
    units: list[int], held: list[tuple[str, str, str, int, int]]
) -> None:
    cards = tuple(Card(f"GPU-{number}", number, each, is_healthy=each > 3) for number, each in enumerate(units))
    found = {(a, b, c, f"GPU-{card}"): taken for a, b, c, card, taken in held if card < len(cards)}
    report = Report(RESOURCE, 1 << 30, cards, 7, tuple(Holding(*key, each) for key, each in sorted(found.items())))
    written = render_report(report)
    jsonschema.validate(json.loads(written), SCHEMA)
    assert sorted(parse_report(written).holdings) == sorted(report.holdings)
    assert parse_report(written)._replace(holdings=()) == report._replace(holdings=())


def test_ids_of_units_are_counted_by_card_and_container() -> None:
    first, second = PodContainer("jobs", "p", "c0"), PodContainer("jobs", "p", "c1")
    listed = (
        DeviceAssignment(first, RESOURCE, ("GPU-a/0", "GPU-a/7")),
        DeviceAssignment(first, RESOURCE, ("GPU-a/8", "GPU-b/0")),  # the kubelet may tell in parts
        DeviceAssignment(second, RESOURCE, ("GPU-b/1",)),
        DeviceAssignment(second, "nvidia.com/gpu", ("GPU-c", "GPU-c/1")),
        DeviceAssignment(second, RESOURCE, ("strange", "GPU-a::1")),
    )
    assert holdings_of(listed, RESOURCE) == (
        Holding("jobs", "p", "c0", "GPU-a", 3),
        Holding("jobs", "p", "c0", "GPU-b", 1),
        Holding("jobs", "p", "c1", "GPU-b", 1),
    )
