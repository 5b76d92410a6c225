"""Every state has a look of its own, and a node that is looked at closely tells its phases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provision.report.runs.remedies import Invocation
from provision.report.status_page.details import node_document, timeline
from provision.report.status_page.feed import Log, LogLine
from provision.report.status_page.machines import machines_document
from provision.report.status_page.rows import head_of, look_of, states_document, steady
from provision.rollout.interface.pause import Pause
from provision.rollout.model import Phase
from provision.rollout.status import situations
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.model import NodeStatus, Seen
from provision.rollout.status.reported import User
from provision.rollout.status.situations import SITUATIONS, Situation
from provision.rollout.status.words import Last
from tests.provision.rollout.fakes import view
from tests.provision.rollout.status.test_reported import GOOD
from tests.provision.status_page.fleets import NOW, STACKS, TOOK, fleet, record


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.key)
def test_every_state_has_a_mark_and_a_tone(situation: Situation) -> None:
    look = look_of(situation)

    assert len(look.mark) == 1
    assert look.tone in {"ok", "wait", "work", "warn", "bad", "off"}
    assert situation.needs_somebody == (look.tone in {"warn", "bad"}) or look.tone == "bad"


def test_states_that_are_worked_at_differ_in_their_marks() -> None:
    marks = [look_of(each).mark for each in situations.WORKING.values()]

    assert len(set(marks)) == len(marks)


def test_a_state_that_the_page_does_not_know_gets_a_look() -> None:
    assert look_of(Situation("nobody-knows", "nobody knows", "", "", needs_somebody=True)).tone == "warn"
    assert look_of(Situation("nobody-knows", "nobody knows", "", "")).mark == "N"


def test_what_needs_somebody_comes_first() -> None:
    needs = [state["needsSomebody"] for state in states_document().values()]

    assert needs == sorted(needs, reverse=True)


def test_phases_are_told_with_what_they_took() -> None:
    known = {Phase.CORDON: 1.0, Phase.DRAIN: 30.0}

    assert [
        (step["phase"], step["status"], step["took"])
        for step in timeline(record(Phase.RELEASE, 99, 7, took=known), int(NOW.timestamp()))
    ][:4] == [
        ("cordon", "done", 1.0),
        ("drain", "done", 30.0),
        ("release", "now", 7),
        ("swap", "ahead", None),
    ]


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_a_timeline(phase: Phase) -> None:
    steps = timeline(record(phase, 99, 7, took=TOOK), int(NOW.timestamp()))

    assert next(step["phase"] for step in steps) == "cordon"
    assert all(step["status"] in {"done", "now", "ahead", "failed"} for step in steps)
    assert [step["status"] for step in steps].count("now") == (not phase.is_over)


def test_phases_that_not_every_node_has_are_told_of_those_that_do() -> None:
    usual = [step["phase"] for step in timeline(record(Phase.SWAP, 99, 7), 0)]
    waited = [step["phase"] for step in timeline(record(Phase.SWAP, 99, 7, took={Phase.JOBS: 8.0}), 0)]

    assert Phase.JOBS not in usual
    assert set(waited) == {*usual, Phase.JOBS}


def test_a_node_that_goes_back_tells_what_came_before() -> None:
    kept = record(Phase.ROLLBACK, 99, 7, took={Phase.DRAIN: 3.0, Phase.SWAP: 40.0})

    assert [(step["phase"], step["status"]) for step in timeline(kept, int(NOW.timestamp()))] == [
        ("drain", "done"),
        ("swap", "done"),
        ("rollback", "now"),
    ]


def test_a_node_that_failed_tells_where_and_what_to_type() -> None:
    kept = record(Phase.FAILED, 900, 60, failed_in=Phase.SWAP, reason="apt: broken", took={Phase.DRAIN: 3.0})
    node = NodeStatus(name="n1", situation=situations.FAILED_IN[Phase.SWAP], reason="apt: broken", record=kept)

    document = node_document(
        node,
        Seen(place="", time=NOW, nodes={}),
        Log(1, (LogLine(1, "drain", ""), LogLine(2, "failed-in-swap", "apt: broken"))),
    )

    assert [step["status"] for step in document["timeline"]] == ["done", "done", "done", "failed", "ahead", "ahead"]
    assert [line[0] for line in document["log"]] == [2, 1], "the last one first"
    assert document["logBegan"] == 1
    assert "grapnel abandon n1" in document["giveUp"]
    assert "NODE" not in document["giveUp"] + document["todo"]


def test_the_page_offers_commands_that_find_the_same_nodes() -> None:
    """It offered `grapnel apply` alone."""
    kept = record(Phase.FAILED, 900, 60, failed_in=Phase.SWAP, reason="apt: broken")
    node = NodeStatus(name="n1", situation=situations.FAILED_IN[Phase.SWAP], reason="apt: broken", record=kept)
    invocation = Invocation(("-i", "inventory.yaml"), "rack-7")

    document = node_document(node, Seen(place="", time=NOW, nodes={}), Log(1), invocation)
    assert document["todo"].endswith("`grapnel apply -i inventory.yaml n1`")
    assert "`grapnel abandon n1 -i inventory.yaml`" in document["giveUp"]
    states = states_document(invocation)
    assert states["failed-in-swap"]["todo"].endswith("`grapnel apply -i inventory.yaml {names}`")
    assert states["failed-in-swap"]["todoForMany"].endswith("`grapnel apply -i inventory.yaml rack-7`")
    assert states["skipped"]["todo"].startswith("`grapnel skip --undo {names} -i inventory.yaml`")
    paused = replace(fleet(40, 4), pause=Pause(by="ada"))
    assert [notice.text for notice in head_of(fleet_status(paused), invocation).notices] == [
        "Paused by ada; `grapnel resume -i inventory.yaml` ends it"
    ]


def test_the_head_says_what_holds_everything() -> None:
    seen = fleet(40, 4)
    assert seen.standing is not None
    assert seen.tenant is not None
    pause = Pause(by="ada", reason="GPUs get warm")
    stopped = replace(
        seen, standing=replace(seen.standing, stop="n1 failed in verify"), complaints=("no lease",), pause=pause
    )

    assert [notice.text for notice in head_of(fleet_status(stopped)).notices] == [
        "The rollout has stopped: n1 failed in verify",
        "Paused by ada: GPUs get warm; `grapnel resume` ends it",
        "no lease",
    ]
    gone = replace(seen, tenant=replace(seen.tenant, is_at_work=False))
    assert [notice.tone for notice in head_of(fleet_status(gone)).notices] == ["warn"]
    early = replace(seen, standing=None)
    assert [notice.text for notice in head_of(fleet_status(early)).notices] == [
        "The engine prepares, or has not published anything yet"
    ]


@pytest.mark.parametrize(
    ("before", "after", "told"), [(None, 5, 5), (5, None, None), (100, 110, 100), (100, 120, 120), (100, 70, 70)]
)
def test_an_estimate_is_told_again_when_it_has_really_moved(
    before: int | None, after: int | None, told: int | None
) -> None:
    assert steady(before, after) == told


def test_stacks_are_told_with_the_nodes_of_which_the_same_is_said() -> None:
    serving, training = head_of(fleet_status(replace(fleet(40, 4), stacks=STACKS))).stacks
    assert (serving.state, serving.tone, serving.progress) == ("Degraded", "bad", "37/40")
    assert serving.troubles[1] == ("gpu08, gpu09", "cannot be reached")
    assert (training.state, training.tone) == ("not looked at", "off")
    assert training.message == "no controller has looked at it yet; its declaration has changed since"


APPLIED = Seen(
    place="cluster test",
    time=NOW,
    nodes={name: view(name) for name in ("n1", "n2", "n3", "n4")},
    reported={"n1": GOOD, "n2": GOOD, "n3": GOOD, "n4": replace(GOOD, offered={"nvidia.com/gpu": 1})},
)


def test_after_a_first_apply_the_page_has_the_rows_of_the_terminal() -> None:
    """It said: 0 of 0 nodes done."""
    last = dict.fromkeys(("n1", "n2"), Last("apply: converged", NOW))
    used = {
        name: replace(GOOD, users=(User("ml/train", {"nvidia.com/gpu": number}),))
        for name, number in (("n1", 1), ("n2", 3))
    }
    look = replace(APPLIED, reported={**APPLIED.reported, **used})
    machines = machines_document(head_of(fleet_status(look), last=last).machines)

    assert machines["heads"] == ["nodes", "driver", "module", "engine", "daemon", "GPUs", "in use", "drift", "last run"]
    known = ["550.163.01", "open", "containerd 1.7.27", "reports"]
    assert machines["rows"] == [
        [["n4", *known, "1 of 4 offered", "not known", "none", "none that is kept"], None, True],
        [["n1, n2", *known, "4 of 4 offered", "1 to 3", "none", "apply: converged"], int(NOW.timestamp()), False],
        [["n3", *known, "4 of 4 offered", "not known", "none", "none that is kept"], None, False],
    ]
    assert machines["unknown"] == []


def test_a_node_that_is_opened_has_its_machine() -> None:
    node = fleet_status(APPLIED).nodes[0]
    document = node_document(node, APPLIED, Log(1), last=Last("apply: converged", NOW))

    facts = {label: (text, said) for label, text, said in document["machine"]}
    assert GOOD.said is not None
    assert facts["daemon"] == ("reports", int(GOOD.said.timestamp()))
    assert facts["GPUs"] == ("4 of 4 offered", None)
    assert facts["last run"] == ("apply: converged", int(NOW.timestamp()))


def test_what_a_node_says_of_its_machine_is_printable() -> None:
    hostile = replace(GOOD, engine="\x1b[2J", drift_words="\u202e")
    machines = machines_document(head_of(fleet_status(replace(APPLIED, reported={"n1": hostile}))).machines)

    assert machines["rows"][0][0][3] == r"\x1b[2J"
