"""Writing a record, and refusing invalid ones."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.cluster.errors import RecordError
from provision.cluster.kubernetes.nodes.marks import AS_DECLARED, NVIDIA_WORDS, render_patch
from provision.cluster.kubernetes.objects.core import Metadata
from provision.cluster.kubernetes.objects.nodes import Node, NodeSpec, Taint
from provision.cluster.record import MAX_REASON, decode_record, encode_record
from provision.rollout.model import ChangeKind, Phase, Record
from tests.provision.cluster.samples import CONTRACT, RECORD
from tests.schema import require_schema

if TYPE_CHECKING:
    from pathlib import Path

GOOD = sorted(CONTRACT.joinpath("good").glob("*.json"))
BAD = sorted(CONTRACT.joinpath("bad").glob("*.json"))
AT_SEVEN = Node(metadata=Metadata(name="n1", resource_version="7"))
SCHEMA = json.loads(CONTRACT.joinpath("schema.json").read_text())
WORDS = {
    "back-for-a-list": "expected `str`, got `array` - at `$.backFor`",
    "boot-is-a-template": "expected `str` matching regex '^[0-9a-f-]{0,64}$' - at `$.boot`",
    "interface-unknown": "invalid enum value 'cdi' - at `$.interface`",
    "kind-unknown": "invalid enum value 'firmware' - at `$.kind`",
    "cordon-is-a-word": "expected `bool`, got `str` - at `$.wasCordoned`",
    "failed-in-nothing-known": "invalid enum value 'apt' - at `$.failedIn`",
    "phase-unknown": "invalid enum value 'reboot' - at `$.phase`",
    "opted-out-is-a-word": "expected `array`, got `str` - at `$.optedOut`",
    "requested-is-a-word": "expected `bool`, got `str` - at `$.requested`",
    "retry-is-a-word": "expected `bool`, got `str` - at `$.retry`",
    "returning-is-a-word": "expected `bool`, got `str` - at `$.returning`",
    "schema-of-the-future": "invalid enum value 'grapnel.dev/node-state/v2' - at `$.schema`",
    "time-at-the-end-of-all-days": "9999-12-31 is not a plausible date of an upgrade",
    "time-is-a-number": "expected `datetime`, got `int` - at `$.since`",
    "time-without-zone": "expected `datetime` with a timezone component - at `$.began`",
    "tainted-is-a-word": "expected `bool`, got `str` - at `$.tainted`",
    "took-in-no-phase": "invalid enum value 'reboot' - at `key` in `$.took`",
    "took-less-than-nothing": "expected `float` >= 0.0 - at `$.took[...]`",
    "without-schema": "object missing required field `schema`",
    "without-target": "object missing required field `target`",
}
moments = st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - the strategy adds it
records = st.builds(
    Record,
    phase=st.sampled_from(Phase),
    target=st.text(),
    origin=st.text(),
    began=moments,
    since=moments,
    was_cordoned=st.booleans(),
    reason=st.text(max_size=MAX_REASON),
    failed_in=st.none() | st.sampled_from(Phase),
    is_tainted=st.booleans(),
    retry=st.booleans(),
    took=st.dictionaries(st.sampled_from(Phase), st.floats(0, 1e6)),
    origin_change=st.none() | st.text(),
    is_returning=st.booleans(),
    is_unrelated=st.booleans(),
    ailment=st.text(max_size=MAX_REASON),
    because_of=st.text(),
    is_touched=st.booleans(),
    is_requested=st.booleans(),
    opted_out=st.lists(st.text(max_size=317), max_size=8).map(tuple),
    kind=st.sampled_from(ChangeKind),
    boot=st.text("0123456789abcdef-", max_size=64),
).map(lambda one: replace(one, is_returning=one.is_returning or one.phase is Phase.ROLLBACK))


@pytest.mark.parametrize("sample", GOOD, ids=lambda path: path.stem)
def test_good_samples_are_read_and_written_back(sample: Path) -> None:
    read = decode_record(sample.read_bytes())

    assert json.loads(encode_record(read)) == json.loads(sample.read_text())


@pytest.mark.parametrize("sample", BAD, ids=lambda path: path.stem)
def test_bad_samples_are_refused_with_the_key(sample: Path) -> None:
    with pytest.raises(RecordError) as raised:
        decode_record(sample.read_bytes())

    assert raised.value.message == WORDS[sample.stem]


@pytest.mark.slow
@given(records)
def test_what_is_written_is_read_back_and_follows_the_schema(record: Record) -> None:
    text = encode_record(record)

    assert decode_record(text) == record
    assert "\n" not in text
    require_schema(json.loads(text), SCHEMA)


@pytest.mark.slow
@given(st.binary() | st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_nonsense_is_an_error_and_not_a_crash(text: str | bytes) -> None:
    with pytest.raises(RecordError):
        decode_record(text)


def test_what_a_newer_grapnel_says_besides_is_ignored() -> None:
    newer = json.loads(encode_record(RECORD)) | {"wave": 3}

    assert decode_record(json.dumps(newer)) == RECORD


def test_a_reason_of_unusual_length_is_cut() -> None:
    read = decode_record(encode_record(replace(RECORD, reason="x" * 100_000)))

    assert len(read.reason) == MAX_REASON
    assert read.reason.endswith("x…")


def test_a_reason_that_a_node_wrote_itself_is_cut_as_well() -> None:
    """A quarter of a megabyte was searched for words again and again: two minutes of the controller for each scrape."""
    forged = json.loads(encode_record(RECORD)) | {"reason": "gate " * 30_000, "ailment": "x" * 50_000}
    read = decode_record(json.dumps(forged))

    assert (len(read.reason), len(read.ailment)) == (MAX_REASON, MAX_REASON)


def test_bytes_that_are_no_text_do_not_get_in_the_way_of_a_reason() -> None:
    assert decode_record(encode_record(replace(RECORD, reason="a\udcffb"))).reason == "a?b"


def test_every_phase_has_a_word_of_nvidia() -> None:
    assert set(NVIDIA_WORDS) == set(Phase)


def test_one_patch_sets_record_labels_and_cordon_on_that_version() -> None:
    patch = render_patch(RECORD, cordoned=True, node=AT_SEVEN)

    assert patch == {
        "metadata": {
            "resourceVersion": "7",
            "labels": {"grapnel.dev/upgrade": "drain", "nvidia.com/gpu-driver-upgrade-state": "drain-required"},
            "annotations": {"grapnel.dev/upgrade": encode_record(RECORD)},
        },
        "spec": {"unschedulable": True},
    }


def test_forgetting_takes_all_keys_away_and_leaves_the_cordon_unless_told() -> None:
    patch = render_patch(None, cordoned=None, node=AT_SEVEN)

    assert patch == {
        "metadata": {
            "resourceVersion": "7",
            "labels": {"grapnel.dev/upgrade": None, "nvidia.com/gpu-driver-upgrade-state": None},
            "annotations": {"grapnel.dev/upgrade": None},
        }
    }


OTHERS = (Taint(key="nvidia.com/gpu", effect="NoSchedule", value="present"), Taint(key="a", effect="NoExecute"))
OURS = Taint(key="grapnel.dev/upgrade", effect="NoSchedule")
TAINTED = replace(RECORD, is_tainted=True)


def taints_after(record: Record | None, *present: Taint) -> list[dict[str, str]] | None:
    """Return the taints that a patch sets, None where it leaves them alone."""
    node = Node(metadata=Metadata(name="n1", resource_version="7"), spec=NodeSpec(taints=present))
    patch = render_patch(record, cordoned=None, node=node)
    found: list[dict[str, str]] | None = patch.get("spec", {}).get("taints")
    return found


@pytest.mark.parametrize(
    ("phase", "is_withdrawn"),
    [(phase, phase is not Phase.DONE) for phase in Phase],
)
def test_that_a_node_is_as_declared_is_withdrawn_with_the_record_of_its_change(
    phase: Phase, *, is_withdrawn: bool
) -> None:
    """It was left there while the node was changed, and believed when the earlier declaration was back."""
    node = msgspec.convert({"metadata": {"name": "n1", "annotations": {AS_DECLARED: "f00"}}}, Node)
    patch = render_patch(replace(RECORD, phase=phase), cordoned=None, node=node)
    assert (patch["metadata"]["annotations"].get(AS_DECLARED, "kept") is None) is is_withdrawn
    assert AS_DECLARED not in render_patch(None, cordoned=None, node=node)["metadata"]["annotations"]
    assert AS_DECLARED not in render_patch(RECORD, cordoned=None, node=AT_SEVEN)["metadata"]["annotations"]


def test_our_taint_comes_and_goes_with_the_record_and_those_of_others_stay() -> None:
    plain = [{"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}, {"key": "a", "effect": "NoExecute"}]
    ours = {"key": "grapnel.dev/upgrade", "effect": "NoSchedule"}

    assert taints_after(TAINTED, *OTHERS) == [*plain, ours]
    assert taints_after(TAINTED, *OTHERS, OURS) is None
    assert taints_after(replace(TAINTED, phase=Phase.FAILED), *OTHERS, OURS) is None
    assert taints_after(replace(TAINTED, phase=Phase.DONE), OTHERS[0], OURS, OTHERS[1]) == plain
    assert taints_after(None, *OTHERS, OURS) == plain, "who forgets the record leaves no taint behind"
    assert taints_after(RECORD, OURS) == [], "a declaration that no longer evicts DaemonSets"
    assert taints_after(RECORD, *OTHERS) is None
