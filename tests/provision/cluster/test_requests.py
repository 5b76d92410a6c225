"""A pause is kept where node state lives, whoever holds the lease, and an engine that renews it learns of it."""

from __future__ import annotations

import json
import multiprocessing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from provision.cluster import LocalCluster
from provision.cluster.kubernetes.lease import PROGRESS, Tenure, hold
from provision.cluster.local.state_file import editing, read_state
from provision.cluster.pause import MAX_TEXT, PAUSE, decode_pause, encode_pause
from provision.cluster.requests import LeasePauses, MixedPauses, StateFilePauses
from provision.rollout.errors import ClusterError
from provision.rollout.interface.pause import Pause
from provision.rollout.model import Phase
from tests.provision.cluster.fakes import Clock, LeaseServer
from tests.provision.cluster.samples import RECORD
from tests.provision.contracts.schemas import CONTRACTS

if TYPE_CHECKING:
    from pathlib import Path

    from provision.cluster.requests import PausePlace

NOW = datetime(2026, 11, 21, 9, 31, 40, tzinfo=UTC)  # of the server's clock at its beginning
BY_ADA = Pause(by="ada@laptop", since=NOW, reason="disk alarms")


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer(Clock())


def annotations(server: LeaseServer) -> dict[str, str]:
    assert server.stored is not None
    found: dict[str, str] = server.stored["metadata"].get("annotations", {})
    return found


@pytest.fixture(params=["the lease", "the state file", "both"])
def place(request: pytest.FixtureRequest, server: LeaseServer, tmp_path: Path) -> PausePlace:
    if request.param == "the lease":
        return LeasePauses(server.api())
    in_file = StateFilePauses(tmp_path / "state" / "node-state-1.json", clock=lambda: NOW)
    return in_file if request.param == "the state file" else MixedPauses(in_file, LeasePauses(server.api()))


def test_a_pause_needs_no_engine_and_ends_with_resume(place: PausePlace) -> None:
    assert place.resume() is None
    assert place.pause("ada@laptop", "disk alarms") == (BY_ADA, None)
    assert place.pause("bob@ci", "") == (Pause(by="bob@ci", since=NOW), BY_ADA)
    assert place.resume() == Pause(by="bob@ci", since=NOW)
    assert place.resume() is None


def test_a_pause_of_a_mixed_fleet_is_in_both_places_and_one_in_either_is_ended(
    server: LeaseServer, tmp_path: Path
) -> None:
    """A rollout of the nodes of one place alone knew nothing of it, and `resume` left one in the state file."""
    in_file = StateFilePauses(tmp_path / "node-state-1.json", clock=lambda: NOW + timedelta(seconds=3))
    on_lease = LeasePauses(server.api())
    both = MixedPauses(in_file, on_lease)

    written, _ = both.pause("ada@laptop", "disk alarms")
    assert in_file.resume() == on_lease.resume() == written, "an engine that reads both sees one pause"
    for place in (in_file, on_lease):
        place.pause("ada@laptop", "disk alarms", NOW)
        assert both.resume() == BY_ADA
        assert in_file.resume() is on_lease.resume() is None


def test_an_engine_learns_of_it_with_its_next_renewal_and_keeps_it(server: LeaseServer) -> None:
    told = iter("abcdefgh")
    engine = Tenure(server.api(), "ada@laptop/1", clock=server.clock, progress=lambda: next(told))
    engine.acquire()
    assert engine.pause is None
    LeasePauses(server.api()).pause("ada@laptop", "disk alarms")

    engine.renew()

    assert engine.pause == BY_ADA
    engine.renew()
    assert set(annotations(server)) == {PAUSE, PROGRESS}
    engine.check()
    LeasePauses(server.api()).resume()
    engine.renew()
    assert engine.pause is None
    assert set(annotations(server)) == {PROGRESS}


def test_a_pause_in_the_moment_of_a_renewal_is_not_overwritten(server: LeaseServer) -> None:
    engine = Tenure(server.api(), "ada@laptop/1", clock=server.clock)
    engine.acquire()
    server.before = lambda: _ignore(LeasePauses(server.api()).pause("ada@laptop", "disk alarms"))

    engine.renew()

    assert engine.pause == BY_ADA
    assert decode_pause(annotations(server)[PAUSE]) == BY_ADA


def test_a_renewal_in_the_moment_of_a_pause_or_its_end_does_not_undo_it(server: LeaseServer) -> None:
    engine = Tenure(server.api(), "ada@laptop/1", clock=server.clock)
    engine.acquire()
    server.before = engine.renew
    LeasePauses(server.api()).pause("ada@laptop", "disk alarms")
    assert PAUSE in annotations(server)
    engine.renew()
    server.before = engine.renew

    LeasePauses(server.api()).resume()

    assert PAUSE not in annotations(server)
    engine.check()


def test_the_next_engine_begins_paused_and_the_pause_outlives_it(server: LeaseServer) -> None:
    LeasePauses(server.api()).pause("ada@laptop", "disk alarms")
    engine = Tenure(server.api(), "bob@ci/2", clock=server.clock)

    with hold(engine):
        assert engine.pause == BY_ADA

    assert set(annotations(server)) == {PAUSE}
    assert server.stored is not None
    assert server.stored["spec"]["holderIdentity"] == ""


def test_a_pause_in_the_moment_of_the_end_leaves_the_lease_free(server: LeaseServer) -> None:
    engine = Tenure(server.api(), "ada@laptop/1", clock=server.clock)
    with hold(engine):
        server.before = lambda: _ignore(LeasePauses(server.api()).pause("ada@laptop", "disk alarms"))

    assert server.stored is not None
    assert server.stored["spec"]["holderIdentity"] == "", "nobody waits until it has run out"
    assert PAUSE in annotations(server)


def test_a_lease_that_somebody_makes_at_the_same_moment_is_paused(server: LeaseServer) -> None:
    server.before = Tenure(server.api(), "ada@laptop/1", clock=server.clock).acquire

    LeasePauses(server.api()).pause("ada@laptop", "disk alarms")

    assert decode_pause(annotations(server)[PAUSE]) == BY_ADA
    assert server.stored is not None
    assert server.stored["spec"]["holderIdentity"] == "ada@laptop/1"


def test_a_lease_that_changes_again_and_again_is_an_error(server: LeaseServer) -> None:
    Tenure(server.api(), "ada@laptop/1", clock=server.clock).acquire()

    def touch() -> None:
        server.touch()
        server.before = touch

    server.before = touch

    with pytest.raises(ClusterError, match="does not come to rest"):
        LeasePauses(server.api()).pause("ada@laptop", "")


@pytest.mark.parametrize("text", ["disk alarms", "{", '{"schema": "grapnel.dev/pause/v2", "by": "x"}', ""])
def test_whatever_is_written_there_by_hand_pauses(text: str) -> None:
    assert decode_pause(text) == Pause(by="somebody", reason=text)


def test_a_text_of_any_length_and_any_characters_can_be_written_and_read() -> None:
    pause = decode_pause(encode_pause(Pause(by="a" * 5000, since=NOW, reason="\udc80\x1b" * 5000)))

    assert (len(pause.by), len(pause.reason)) == (MAX_TEXT, MAX_TEXT)
    assert len(decode_pause("x" * 100_000).reason) == MAX_TEXT


@pytest.mark.parametrize("sample", sorted(CONTRACTS.glob("pause/good/*.json")), ids=lambda path: path.stem)
def test_good_samples_are_read_and_written_back(sample: Path) -> None:
    assert json.loads(encode_pause(decode_pause(sample.read_text()))) == json.loads(sample.read_text())


@pytest.mark.parametrize("sample", sorted(CONTRACTS.glob("pause/bad/*.json")), ids=lambda path: path.stem)
def test_bad_samples_pause_all_the_same(sample: Path) -> None:
    assert decode_pause(sample.read_text()) == Pause(by="somebody", reason=sample.read_text().strip())


def test_an_engine_without_a_cluster_learns_of_it_when_it_looks_and_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "node-state-1.json"
    engine = LocalCluster(path)
    with engine.lease("ada@laptop/1"):
        engine.observe(["n1"])
        StateFilePauses(path, clock=lambda: NOW).pause("ada@laptop", "disk alarms")
        engine.write("n1", RECORD, cordoned=True)
        engine.observe(["n1"])
        assert engine.paused() == BY_ADA
    assert LocalCluster(path).paused() == BY_ADA
    StateFilePauses(path).resume()
    assert LocalCluster(path).observe(["n1"])["n1"].record == RECORD


@pytest.mark.slow
def test_nothing_is_lost_when_several_processes_change_the_state_file(tmp_path: Path) -> None:
    path = tmp_path / "node-state-1.json"
    names = [f"n{number}" for number in range(4)]
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_on, args=(path, name)) for name in names]
    for writer in writers:
        writer.start()
    for _ in range(20):
        StateFilePauses(path).pause("ada", "again")
    for writer in writers:
        writer.join()

    found = read_state(path)
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert sorted(found.nodes) == names
    assert {entry.record.phase for entry in found.nodes.values() if entry.record} == {Phase.DRAIN}
    assert found.pause is not None


def test_a_state_file_that_cannot_be_read_is_not_overwritten_by_a_pause(tmp_path: Path) -> None:
    path = tmp_path / "node-state-1.json"
    path.write_text("{")

    for attempt in (lambda: StateFilePauses(path).pause("ada", ""), StateFilePauses(path).resume):
        with pytest.raises(ClusterError, match="cannot be read"):
            attempt()

    assert path.read_text() == "{"
    path.unlink()
    with editing(path) as found:
        assert found.nodes == {}, "the lock was given back"


def _write_on(path: Path, name: str) -> None:
    cluster = LocalCluster(path)
    for _ in range(20):
        cluster.observe([name])
        cluster.write(name, RECORD, cordoned=True)


def _ignore(_value: object) -> None:
    """Make a hook of something that returns a value."""
