"""What an engine publishes comes back, and has a bounded size whatever the fleet."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from provision.cluster.errors import RecordError
from provision.cluster.progress import MAX_BYTES, MAX_REASONS, decode_progress, encode_progress
from provision.rollout.interface.standing import Members, Standing
from tests.provision.cluster.samples import NOW
from tests.schema import require_schema

CONTRACT = Path(__file__).parents[3] / "docs" / "contracts" / "rollout-progress"
GOOD = sorted(CONTRACT.joinpath("good").glob("*.json"))
BAD = sorted(CONTRACT.joinpath("bad").glob("*.json"))
WORDS = {
    "at-once-is-negative": "expected `int` >= 0 - at `$.atOnce`",
    "count-of-millions": "expected `int` <= 100000 - at `$.waiting[0].count`",
    "nodes-are-a-text": "expected `array`, got `str` - at `$.out`",
    "schema-of-the-future": "invalid enum value 'grapnel.dev/rollout-progress/v2' - at `$.schema`",
    "time-without-zone": "expected `datetime` with a timezone component - at `$.time`",
    "wave-without-title": "object missing required field `title` - at `$.waves[0]`",
    "waiting-without-reason": "object missing required field `reason` - at `$.waiting[0]`",
}
STANDING = Standing(
    began=NOW,
    time=NOW + timedelta(minutes=4),
    at_once=2,
    soak=timedelta(minutes=5),
    wave_soak=timedelta(hours=1),
    is_held=True,
    out=frozenset({"n1", "n2"}),
    waiting={"n1": "pod shop/web-1 still on the node"} | dict.fromkeys(("n3", "n4", "n5"), "waits for n1: drain"),
    waves=(Members("wave 1 of 2 (canary)", ("n1", "n2")), Members("wave 2 of 2", ("n3", "n4", "n5"))),
    domains=(Members("rack-1", ("n1", "n3")), Members("rack-2", ("n2", "n4"))),
)


@pytest.mark.parametrize("sample", GOOD, ids=lambda path: path.stem)
def test_good_samples_are_read_and_written_back(sample: Path) -> None:
    read = decode_progress(sample.read_bytes())

    if not read.unnamed:
        assert json.loads(encode_progress(read)) == json.loads(sample.read_text())


@pytest.mark.parametrize("sample", BAD, ids=lambda path: path.stem)
def test_bad_samples_are_refused_with_the_key(sample: Path) -> None:
    with pytest.raises(RecordError) as raised:
        decode_progress(sample.read_bytes())

    assert raised.value.message == WORDS[sample.stem]


def test_what_is_published_comes_back() -> None:
    text = encode_progress(STANDING)

    assert decode_progress(text) == STANDING
    require_schema(json.loads(text), json.loads(CONTRACT.joinpath("schema.json").read_text()))


def test_nodes_are_called_as_the_cluster_calls_them() -> None:
    read = decode_progress(encode_progress(STANDING, {"n1": "node-1", "n3": "node-3"}))

    assert read.out == {"node-1", "n2"}
    assert set(read.waiting) == {"node-1", "node-3", "n4", "n5"}


def test_five_thousand_equal_nodes_are_a_few_hundred_bytes() -> None:
    names = [f"gpu{number:04}" for number in range(5000)]
    whole = (Members("wave 1 of 1", tuple(names)),)
    text = encode_progress(replace(STANDING, waiting=dict.fromkeys(names, "waits for gpu0000: swap"), waves=whole))

    assert len(text) < 600
    assert len(decode_progress(text).waiting) == 5000


@pytest.mark.parametrize("letter", ["x", '"', "\x01", "\ud800", "€"], ids=ascii)
def test_the_worst_fleet_stays_within_the_limit_and_no_node_is_forgotten(letter: str) -> None:
    waiting = {f"{number:x}-{letter * 200}-{number * 7919:x}": f"{number} {letter * 5000}" for number in range(5000)}
    text = encode_progress(replace(STANDING, waiting=waiting, stop=letter * 9999, out=frozenset(waiting)))

    assert len(text.encode()) <= MAX_BYTES
    read = decode_progress(text)
    assert len(read.waiting) + sum(number for _reason, number in read.unnamed) == 5000


def test_the_commonest_reasons_are_kept() -> None:
    waiting = {f"m{number}": f"reason {number}" for number in range(0, 2 * MAX_REASONS, 2)}
    waiting |= dict.fromkeys((f"common{number}" for number in range(9)), "waits for n1: swap")

    read = decode_progress(encode_progress(replace(STANDING, waiting=waiting)))

    assert read.waiting["common3"] == "waits for n1: swap"
    assert read.unnamed == (("for other reasons", 1),)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"schema": 1}', "x" * (MAX_BYTES + 1)])
def test_nonsense_is_an_error_and_not_a_crash(text: str) -> None:
    with pytest.raises(RecordError):
        decode_progress(text)


def test_a_hostile_document_costs_little() -> None:
    spans = [{"reason": "r", "count": 100_000, "nodes": ["n0..n999999999"]}] * 1000
    document = json.loads(encode_progress(STANDING)) | {"waiting": spans}

    assert len(decode_progress(json.dumps(document)).waiting) <= 100_000


def test_waves_come_before_domains_where_not_all_names_fit() -> None:
    names = tuple(f"{number * 7919:x}-gpu" for number in range(5000))
    domains = tuple(Members(f"rack-{start}", names[start : start + 16]) for start in range(0, 5000, 16))
    text = encode_progress(replace(STANDING, waves=(Members("wave 1 of 1", names[:1000]),), domains=domains))
    read = decode_progress(text)

    assert len(text) < MAX_BYTES
    assert set(read.waves[0].nodes) == set(names[:1000])
    assert 0 < len(read.domains) < len(domains)
