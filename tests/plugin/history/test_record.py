"""The contracts node-history and explanation, and that nothing of the history is lost in its text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.base.errors import HistoryError
from plugin.holdings.history.ledger import Ledger
from plugin.holdings.history.model import Allocation, Choice, Claim, DeviceChange, Place
from plugin.holdings.history.record import MAX_BYTES, parse_history, render_events, render_start
from plugin.holdings.history.view import NOT_ASKED, explain
from plugin.kubelet.pod_resources.attribution import PodContainer

CONTRACTS = Path(__file__).parents[3] / "docs/contracts"
LINE = json.loads((CONTRACTS / "node-history/schema.json").read_text())
GOOD = sorted(CONTRACTS.glob("node-history/good/*.jsonl"))
BAD = sorted(CONTRACTS.glob("node-history/bad/*.jsonl"))
EXPLANATION = json.loads((CONTRACTS / "explanation/schema.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_samples_fit_the_schema_and_are_written_as_they_were_read(path: Path) -> None:
    for line in path.read_text().splitlines():
        jsonschema.validate(json.loads(line), LINE)
    assert render_start() + "".join(render_events(parse_history(path.read_bytes()))) == path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_samples_are_refused_for_the_right_reason(path: Path) -> None:
    first, *rest = map(json.loads, path.read_text().splitlines())
    schema = {"$schema": LINE["$schema"], "items": [{**LINE, "required": ["schema"]}], "additionalItems": LINE}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([first, *rest], schema)
    with pytest.raises(ValueError, match=re.escape(path.with_suffix(".txt").read_text().strip())):
        parse_history(path.read_bytes())


@pytest.mark.parametrize("path", sorted(CONTRACTS.glob("explanation/good/*.json")), ids=lambda path: path.stem)
def test_an_explanation_is_made_of_the_history_of_the_same_name(path: Path) -> None:
    ledger = Ledger(0)
    ledger.begin_with(parse_history((CONTRACTS / f"node-history/good/{path.stem}.jsonl").read_bytes()))
    document = {**explain(ledger, "", 20), "problems": []}
    assert document == json.loads(path.read_text())
    jsonschema.validate(document, EXPLANATION)


@pytest.mark.parametrize("path", sorted(CONTRACTS.glob("explanation/bad/*.json")), ids=lambda path: path.stem)
def test_bad_explanations_do_not_fit_the_schema(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), EXPLANATION)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"\xff\n", "utf-8|not json", id="not text"),
        pytest.param(b"{", "schema is not", id="cut off in the first line"),
        pytest.param(
            render_start().encode() + b"[" * 100_000 + b"\n", "line 2: not valid json", id="nested without end"
        ),
        pytest.param(render_start().encode() + b"{\n{}\n", "line 2", id="half a line in the middle"),
        pytest.param(b" " * (MAX_BYTES + 1), "larger than", id="too large"),
    ],
)
def test_texts_that_are_no_history(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_history(content)


TEXTS = st.text(max_size=80)
TIMES = st.floats(0, 2e9)
HOLDERS = st.builds(PodContainer, TEXTS, TEXTS, TEXTS)
CLAIMS = st.builds(Claim, HOLDERS, TIMES, st.booleans(), st.one_of(st.none(), TIMES))
DEVICES = st.lists(st.sampled_from(["GPU-a", "GPU-b", "GPU-c::0", "é\n"]), unique=True, max_size=4).map(tuple)


@st.composite
def choices(draw: st.DrawFn) -> Choice:
    available = draw(DEVICES)
    some = st.lists(st.sampled_from(available), unique=True).map(tuple) if available else st.just(())
    positions = range(len(available))
    candidates = " ".join(
        f"{'.'.join(map(str, positions))}:{score}" for score in draw(st.sets(st.integers(0, 9))) if available
    )
    return Choice(
        draw(TIMES), len(available), available, draw(some), 2, draw(some), draw(TEXTS), 3, draw(TEXTS), candidates, 0
    )


EVENTS = st.one_of(
    st.builds(Place, TEXTS, st.integers(0, 1000)),
    st.builds(DeviceChange, TIMES, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS),
    st.builds(
        Allocation,
        number=st.integers(0, 2**40),
        at=TIMES,
        resource=TEXTS,
        devices=DEVICES,
        refused=TEXTS,
        choice=st.one_of(st.none(), choices()),
        claims=st.lists(CLAIMS, max_size=2).map(tuple),
        is_joinable=st.booleans(),
    ),
)


@given(st.lists(EVENTS, max_size=6), st.integers(0, 400))
def test_what_is_written_is_read_and_a_line_without_its_end_was_not_written(
    events: list[Place | DeviceChange | Allocation], cut: int
) -> None:
    content = (render_start() + "".join(render_events(events))).encode()
    assert parse_history(content) == events
    start, rest = content[: len(render_start())], content[len(render_start()) :]
    kept = rest[: max(0, len(rest) - cut)]
    assert parse_history(start + kept) == events[: kept.count(b"\n")]


A, B = "GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109", "GPU-7d11e010-ec78-5e6f-8228-fa5ab15a3109"


@pytest.fixture
def ledger() -> Ledger:
    known = Ledger(0)
    holder = PodContainer("default", "train", "main")
    known.begin_with(
        [
            Place(A, 0),
            Place(B, 1),
            DeviceChange(1, A, "seen"),
            DeviceChange(1, B, "unhealthy", "lost", "", "lost: gone"),
            Allocation(1, 2, "nvidia.com/gpu", (A,)),
            Allocation(2, 2, "nvidia.com/gpu", (A,), claims=(Claim(holder, 3),)),
            Allocation(3, 4, "nvidia.com/gpu", (B,), refused="no"),
        ]
    )
    return known


@pytest.mark.parametrize(
    ("about", "numbers", "devices"),
    [
        pytest.param("", [3, 2, 1], [A, B], id="everything"),
        pytest.param("train", [2], [A], id="a pod"),
        pytest.param("default/train", [2], [A], id="a pod of a namespace"),
        pytest.param("0", [2, 1], [A], id="an index"),
        pytest.param(B, [3], [B], id="a device"),
        pytest.param("gpu-7d11", [3], [B], id="the beginning of a device"),
    ],
)
def test_what_is_asked_for_is_found(ledger: Ledger, about: str, numbers: list[int], devices: list[str]) -> None:
    found = explain(ledger, about, 20)
    allocations, shown = found["allocations"], found["devices"]
    assert isinstance(allocations, list)
    assert isinstance(shown, list)
    assert ([one["number"] for one in allocations], [one["id"] for one in shown]) == (numbers, devices)


@pytest.mark.parametrize("about", ["other", "other/train", "7", "GPU-8", "GPU-7d", "-1", "é" * 300])
def test_what_nobody_knows_or_what_is_not_enough_is_an_error(ledger: Ledger, about: str) -> None:
    with pytest.raises(HistoryError, match=r"nothing is known of|is the beginning of 2 devices"):
        explain(ledger, about, 20)


def test_only_the_last_ones_are_told_and_the_others_counted(ledger: Ledger) -> None:
    found = explain(ledger, "", 1)
    assert isinstance(found["allocations"], list)
    assert ([one["number"] for one in found["allocations"]], found["leftOff"]) == ([3], 2)
    assert (explain(ledger, "", 0)["allocations"], explain(ledger, "", 0)["leftOff"]) == ([], 3)


def test_what_is_not_known_is_said(ledger: Ledger) -> None:
    found = explain(ledger, "", 20)["allocations"]
    assert isinstance(found, list)
    refused, claimed, init = found
    assert (refused["podsNote"], refused["preferenceNote"]) == ("nobody: it was refused", "")
    assert (claimed["podsNote"], claimed["preferenceNote"], claimed["followed"]) == ("", NOT_ASKED, None)
    assert "listed no container with these devices: an init container's" in init["podsNote"]
