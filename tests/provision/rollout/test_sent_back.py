"""Nodes that are to be left with their former driver, where a controller would bring the declared one again."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from provision.cluster.record import decode_record, encode_record
from provision.rollout.adapters import Adapters
from provision.rollout.changes.driver_verbs import execute_verb, verb_steps
from provision.rollout.changes.plan import Extent, plan_verb
from provision.rollout.decision import undoing
from provision.rollout.model import Phase, Record
from tests.provision.apply.fakes import context
from tests.provision.rollout.fakes import NEW, OLD, Clock, record
from tests.provision.rollout.machines import BACK, BEFORE, CHANGED, Machines, machines
from tests.provision.samples import make_stack

ADA = "ada@laptop"


def send_back(found: Machines, *names: str, declared: str = NEW) -> dict[str, str]:
    """Take nodes back that somebody wants so; return the status of each."""
    stacks = dict.fromkeys(names, make_stack(driver={"version": declared}))
    answers = {name: found.facts(name) for name in names}
    extent = Extent(wanted_by=dict.fromkeys(names, ADA))
    planned = plan_verb(BACK, answers, stacks, found.cluster.observe(list(names)), extent)
    found.cancel = threading.Event()
    steps = verb_steps(context(found), stacks, planned)  # type: ignore[arg-type] # a runner as well
    adapters = Adapters(cluster=found.cluster, steps=steps, clock=Clock(), poll_s=0.001)
    results = execute_verb(planned, adapters, lambda _seen: None, cancel=found.cancel, holder="me")
    return {result.node: result.status.value for result in results}


def record_of(found: Machines, name: str = "n1") -> Record:
    record = found.cluster.nodes[name].record
    assert record is not None
    return record


def test_a_node_ends_as_one_whose_upgrade_was_taken_back() -> None:
    found = machines(n1=replace(CHANGED, back_for=ADA))

    assert send_back(found, "n1") == {"n1": "returned"}

    after = record_of(found)
    assert (after.phase, after.target, after.origin, after.back_for) == (Phase.RETURNED, NEW, OLD, "")
    assert after.complaint == f"returned to {OLD}: {ADA} asked for it (`grapnel rollback`)"
    assert (after.has_failed, after.is_blamed, after.was_sent_back) == (True, False, True)
    assert undoing.part_of(make_stack(driver={"version": NEW}).driver, after) is undoing.Part.RETURNED
    assert not found.cluster.nodes["n1"].is_cordoned


def test_what_was_asked_for_stays_on_the_node_until_it_is_done() -> None:
    """Whoever leads next goes on with it, and not with the declared driver."""
    found = machines(n1=replace(CHANGED, back_for=ADA))
    found.dies_at = "n1"

    assert send_back(found, "n1") == {"n1": "canceled"}
    assert record_of(found).back_for == ADA
    found.dies_at = ""

    assert send_back(found, "n1") == {"n1": "returned"}
    assert (record_of(found).phase, record_of(found).target) == (Phase.RETURNED, NEW)
    assert found.returned == ["n1"]


def test_a_failed_upgrade_that_is_taken_back_ends_the_same() -> None:
    failed = record(Phase.FAILED, origin_change=BEFORE, failed_in=Phase.VERIFY, reason="3 of 4 GPUs answer")
    found = machines(n1=replace(failed, back_for=ADA))

    assert send_back(found, "n1") == {"n1": "returned"}

    assert (record_of(found).target, record_of(found).origin) == (NEW, OLD)
    assert record_of(found).was_sent_back


def test_a_node_that_fails_on_the_way_is_not_asked_again_by_itself() -> None:
    found = machines(n1=replace(CHANGED, back_for=ADA))
    found.fails = ("n1",)

    assert send_back(found, "n1") == {"n1": "failed"}

    assert (record_of(found).phase, record_of(found).back_for) == (Phase.FAILED, "")


@pytest.mark.parametrize("phase", [Phase.DONE, Phase.RETURNED, Phase.FAILED])
def test_a_request_ends_with_the_upgrade_that_it_is_about(phase: Phase) -> None:
    flying = replace(record(Phase.SWAP), back_for=ADA)

    assert flying.entering(Phase.VERIFY, flying.since).back_for == ADA
    assert flying.entering(phase, flying.since).back_for == ""


def test_who_asks_is_cut_to_what_can_be_read_again() -> None:
    long = replace(CHANGED, back_for="a" * 1000)

    assert decode_record(encode_record(long)).back_for == "a" * 200
