"""What a person asks of single nodes, and what an engine at work makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.model import GpuInterface
from provision.rollout.decision.policy import Policy
from provision.rollout.engine import RETRIES
from provision.rollout.errors import ConflictError
from provision.rollout.model import ChangeKind, Phase
from provision.rollout.requests import Found, RecordChange, abandon, retry, send_back, skip, uncordon, unskip
from tests.provision.rollout.fakes import NEW, OLD, FakeSteps, record, view
from tests.provision.rollout.process import Rollout, fleet, statuses

if TYPE_CHECKING:
    import threading

    from provision.rollout.model import Record
    from provision.rollout.requests import RequestResult
    from tests.provision.rollout.fakes import FakeCluster

FAILED = record(Phase.FAILED, failed_in=Phase.VERIFY, reason="3 of 4 GPUs answer")
DONE = record(Phase.DONE)
KEPT = record(
    Phase.RETURNED,
    target=NEW,
    origin=NEW,
    upgraded_from=OLD,
    kind=ChangeKind.INTERFACE,
    interface=GpuInterface.DRA,
    failed_in=Phase.VERIFY,
    is_returning=True,
)


def found(remembered: Record | None = None, *, unread: str = "", **more: object) -> Found:
    return Found(view=view("n1", remembered, **more), unread=unread)


@pytest.mark.parametrize(
    ("answer", "change", "words"),
    [
        pytest.param(
            skip(found()),
            RecordChange(skipped=True),
            "is skipped: no upgrade begins on it until `grapnel skip --undo n1`",
            id="skip",
        ),
        pytest.param(
            skip(found(record(Phase.SWAP))),
            RecordChange(skipped=True),
            "it is in swap, and that upgrade is finished first; `grapnel abandon n1` ends it here",
            id="skip a node in flight",
        ),
        pytest.param(
            skip(found(record(Phase.DRAIN))),
            RecordChange(skipped=True),
            "it is in drain, before its driver is changed: whoever is at work puts it back into service, or else the "
            "next run does, as it is",
            id="skip a node that drains",
        ),
        pytest.param(
            skip(found(record(Phase.RELEASE))),
            RecordChange(skipped=True),
            "with what it has, once verified",
            id="skip a node whose GPUs are released",
        ),
        pytest.param(skip(found(is_skipped=True)), None, "was skipped already", id="skip again"),
        pytest.param(unskip(found(is_skipped=True)), RecordChange(skipped=False), "is no longer skipped", id="unskip"),
        pytest.param(unskip(found()), None, "was not skipped", id="unskip what was not skipped"),
        pytest.param(
            retry(found(FAILED), "ada@laptop/1"),
            RecordChange(writes_record=True, record=replace(FAILED, retry=True)),
            "is tried again by ada@laptop/1",
            id="retry",
        ),
        pytest.param(retry(found(FAILED), ""), None, "by the next `grapnel apply`", id="retry with nobody at work"),
        pytest.param(
            retry(found(FAILED), "", "controller-0"),
            RecordChange(writes_record=True, record=replace(FAILED, retry=True)),
            "is tried again by the controller (controller-0), as soon",
            id="retry with a controller that is idle",
        ),
        pytest.param(
            retry(found(FAILED), "ada", "controller-0"),
            RecordChange(writes_record=True, record=replace(FAILED, retry=True)),
            "is tried again by ada, or by the controller after that, as soon",
            id="retry while somebody is at a terminal",
        ),
        pytest.param(retry(found(replace(FAILED, retry=True)), "ada"), None, "is tried again by ada", id="retry again"),
        pytest.param(
            abandon(found(record(Phase.SWAP))),
            RecordChange(writes_record=True, skipped=True),
            "is yours: its upgrade ended in swap and is forgotten, and none begins on it until "
            "`grapnel skip --undo n1`\n"
            "a step that has begun on it goes on to its end, and nothing follows: it was in swap\n"
            "its GPUs may be out of service, and its driver was not verified since it was changed\n"
            "it stays cordoned, and counts as unavailable",
            id="abandon in the swap",
        ),
        pytest.param(
            abandon(found(record(Phase.DRAIN, was_cordoned=True))),
            RecordChange(writes_record=True, skipped=True),
            "is yours: its upgrade ended in drain and is forgotten, and none begins on it until "
            "`grapnel skip --undo n1`\nit stays cordoned, as it was before the upgrade, and counts as unavailable",
            id="abandon in the drain",
        ),
        pytest.param(
            abandon(found(FAILED)),
            RecordChange(writes_record=True, skipped=True),
            "is yours: its upgrade ended in verify and is forgotten, and none begins on it until "
            "`grapnel skip --undo n1`\n"
            "its GPUs may be out of service, and its driver was not verified since it was changed\n"
            "it stays cordoned, and counts as unavailable",
            id="abandon what failed",
        ),
        pytest.param(
            abandon(found(unread="it is no JSON", is_cordoned=True)),
            RecordChange(writes_record=True, skipped=True),
            "its GPUs may be out of service",
            id="abandon a node whose record cannot be read",
        ),
        pytest.param(
            abandon(found(is_skipped=True, is_cordoned=True)),
            None,
            "is in no upgrade, and none begins on it",
            id="abandon again",
        ),
        pytest.param(
            send_back(found(DONE), "ada@laptop", "controller-0"),
            RecordChange(writes_record=True, record=replace(DONE, back_for="ada@laptop")),
            f"returned to the driver before ({OLD}) by the controller (controller-0)",
            id="send back",
        ),
        pytest.param(
            send_back(found(FAILED, is_cordoned=True), "ada@laptop", "controller-0"),
            RecordChange(writes_record=True, record=replace(FAILED, back_for="ada@laptop")),
            "is left so until `grapnel retry n1`",
            id="send back what failed",
        ),
        pytest.param(
            send_back(found(replace(DONE, back_for="bob@ci")), "ada@laptop", "controller-0"),
            None,
            "is to go back already: bob@ci asked for it",
            id="send back again",
        ),
        pytest.param(
            send_back(found(record(Phase.RETURNED, is_returning=True)), "ada@laptop", "controller-0"),
            None,
            f"has its former driver already ({OLD})",
            id="send back what has returned",
        ),
        pytest.param(
            send_back(found(KEPT), "ada@laptop", "controller-0"),
            RecordChange(writes_record=True, record=replace(KEPT, back_for="ada@laptop")),
            f"returned to the driver before ({OLD}) by",
            id="send back a node that has its former interface again, and the driver of its last upgrade",
        ),
        pytest.param(
            send_back(found(replace(KEPT, upgraded_from="", phase=Phase.DONE)), "ada@laptop", "controller-0"),
            RecordChange(
                writes_record=True, record=replace(KEPT, upgraded_from="", phase=Phase.DONE, back_for="ada@laptop")
            ),
            "returned to the driver before by the controller",
            id="send back a node of which no upgrade is remembered",
        ),
        pytest.param(
            retry(found(replace(DONE, back_for="bob@ci")), "", "controller-0"),
            RecordChange(writes_record=True, record=DONE),
            "does not go back to its former driver, as bob@ci had asked",
            id="take it back",
        ),
        pytest.param(
            uncordon(found(is_cordoned=True)), RecordChange(cordoned=False), "takes pods again", id="uncordon"
        ),
        pytest.param(uncordon(found()), None, "takes pods", id="uncordon what takes pods"),
    ],
)
def test_a_node_is_changed_and_the_person_told_what_that_means(
    answer: RequestResult, change: RecordChange | None, words: str
) -> None:
    assert answer.change == change
    assert words in "\n".join(answer.words)
    assert not answer.is_refused


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (retry(found(), "ada"), "has not failed: no upgrade of it is recorded"),
        (retry(found(record(Phase.DRAIN)), "ada"), "has not failed: its upgrade is in drain"),
        (retry(found(record(Phase.DONE)), ""), "has not failed: its upgrade is done"),
        (send_back(found(), "ada", "controller-0"), "nothing to go back to: no upgrade of it is recorded"),
        (send_back(found(record(Phase.DRAIN)), "ada", "controller-0"), "is in drain: that ends first"),
        (send_back(found(DONE, is_skipped=True), "ada", "controller-0"), "`grapnel skip --undo n1` first"),
        (send_back(found(unread="it is no JSON"), "ada", "controller-0"), "cannot be returned: it is no JSON"),
        (retry(found(FAILED, is_skipped=True), "ada"), "`grapnel skip --undo n1` first"),
        (retry(found(unread="it is no JSON"), "ada"), "cannot be tried again: it is no JSON"),
        (abandon(found()), "has no upgrade to be taken out of: `grapnel skip n1`"),
        (abandon(found(record(Phase.DONE))), "has no upgrade to be taken out of"),
        (uncordon(found(record(Phase.CORDON))), "is in an upgrade again (cordon): it stays cordoned"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(answer: RequestResult, words: str) -> None:
    assert answer.is_refused
    assert answer.change is None
    assert words in answer.words[0]


def ask_for_a_retry(cluster: FakeCluster, node: str) -> None:
    remembered = cluster.nodes[node].record
    assert remembered is not None
    cluster.nodes[node].record = replace(remembered, retry=True)


@pytest.mark.parametrize(
    ("broken", "end"),
    [
        pytest.param(Phase.RELEASE, Phase.FAILED, id="out of service"),
        pytest.param(Phase.VERIFY, Phase.RETURNED, id="with its former driver"),
    ],
)
def test_a_running_engine_tries_a_failed_node_again_and_it_counts_as_failed_no_more(broken: Phase, end: Phase) -> None:
    cluster = fleet("n1", "n2", "n3")
    cluster.nodes["n1"].broken = broken
    asked: list[str] = []

    def repair_and_ask() -> None:
        node = cluster.nodes["n1"]
        if node.record is not None and node.record.phase is end and not asked:
            node.broken = None
            ask_for_a_retry(cluster, "n1")
            asked.append("n1")

    cluster.on_observe = repair_and_ask

    results = Rollout(cluster, Policy(max_parallel=2, max_unavailable=2)).run()

    assert asked
    assert statuses(results) == ["converged"] * 3
    assert cluster.nodes["n1"].record is not None
    assert not cluster.nodes["n1"].record.retry, "what was asked for is done"


def test_a_node_that_asks_for_itself_again_and_again_ends() -> None:
    cluster = fleet("n1")
    cluster.nodes["n1"].broken = Phase.RELEASE

    def insist() -> None:
        node = cluster.nodes["n1"]
        if node.record is not None and node.record.phase is Phase.FAILED:
            ask_for_a_retry(cluster, "n1")

    cluster.on_observe = insist

    assert statuses(Rollout(cluster).run()) == ["failed"]
    assert cluster.nodes["n1"].touched.count(Phase.RELEASE) == RETRIES + 1


def test_a_step_on_an_abandoned_node_ends_and_nothing_follows() -> None:
    cluster = fleet("n1", "n2")

    def take_over(node: str, phase: Phase, _cancel: threading.Event) -> None:
        if (node, phase) == ("n1", Phase.SWAP):
            cluster.nodes["n1"].record = None
            cluster.nodes["n1"].is_skipped = True

    real_write = cluster.write

    def write(node: str, remembered: Record | None, *, cordoned: bool | None = None) -> None:
        if cluster.nodes[node].is_skipped:
            raise ConflictError(f"{node} was changed by somebody else meanwhile")
        real_write(node, remembered, cordoned=cordoned)

    cluster.write = write  # type: ignore[method-assign]  # a store that notices changes by others, as the real ones do
    rollout = Rollout(cluster, Policy(max_unavailable=2), steps=FakeSteps(cluster, meet=take_over))

    results = rollout.run()

    assert statuses(results) == ["skipped", "converged"]
    taken = cluster.nodes["n1"]
    assert taken.touched == [Phase.RELEASE, Phase.SWAP]
    assert (taken.record, taken.is_cordoned) == (None, True), "it is as the person took it"
    assert cluster.nodes["n2"].driver == NEW


def test_an_abandoned_node_counts_as_any_that_somebody_has_cordoned() -> None:
    cluster = fleet("n1", "n2")
    cluster.nodes["n1"].is_skipped = cluster.nodes["n1"].is_cordoned = True

    result = Rollout(cluster).run()["n2"]

    assert result.failure is not None
    assert result.failure.message == "1 of 2 nodes may be unavailable: n1 is cordoned"


def test_a_failed_node_that_was_abandoned_no_longer_counts_as_failed() -> None:
    cluster = fleet("n1", "n2", "n3")
    cluster.nodes["n1"].broken = Phase.RELEASE

    def take_over() -> None:
        node = cluster.nodes["n1"]
        if node.record is not None and node.record.phase is Phase.FAILED:
            node.record, node.is_skipped = None, True

    cluster.on_observe = take_over

    results = Rollout(cluster, Policy(max_parallel=2, max_unavailable=2)).run()

    assert statuses(results) == ["skipped", "converged", "converged"]
    assert all(result.is_good for result in results.values()), "an apply that leaves out what it was told to is fine"
    assert results["n1"].note == "no upgrade begins on it until `grapnel skip --undo n1`"
    assert cluster.nodes["n1"].driver == OLD
