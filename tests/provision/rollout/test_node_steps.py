"""Steps as runs of playbooks."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import jsonschema
import msgspec
import pytest

from provision.apply.converge import assess
from provision.apply.model import Assessment, Note, Status
from provision.apply.runner import RunStatus
from provision.declaration.fleet.errors import AnswerError
from provision.declaration.fleet.facts.mig import MigGpu, MigState
from provision.declaration.fleet.facts.node import DeviceHolder, Gpu
from provision.declaration.fleet.facts.release_result import parse_release_result
from provision.rollout.decision.snapshot import Holder
from provision.rollout.model import Phase
from provision.rollout.step import StepOutcome
from provision.rollout.steps.node_steps import NodeSteps, is_verified, render_expectation, render_mig
from tests.provision.apply.fakes import FakeFleet, FakeNode, Watcher, context, plan_drain, plan_staged
from tests.provision.rollout.fakes import NEW
from tests.provision.samples import make_facts, make_stack

TRAIN: dict[str, object] = {"pid": 7, "command": "train", "unit": None, "pod_uid": "u1", "devices": ["/dev/nvidia0"]}


def run_step(
    node: FakeNode, phase: Phase, watcher: Watcher | None = None, **sections: dict[str, object]
) -> StepOutcome:
    fleet = FakeFleet({"n1": node})
    declared: dict[str, dict[str, object]] = {"driver": {"version": NEW}, **sections}
    stack = make_stack(**declared)
    steps = NodeSteps(context(fleet, plan_drain), {"n1": stack})
    return steps.run("n1", phase, watcher or Watcher(), threading.Event())


def test_release_tells_who_holds_a_gpu() -> None:
    node = FakeNode(holders=[TRAIN])
    assert run_step(node, Phase.RELEASE) == StepOutcome(holders=(Holder(pid=7, command="train", pod_uid="u1"),))
    assert run_step(node, Phase.RELEASE) == StepOutcome()
    assert node.verbs == ["release", "release"]


@pytest.mark.parametrize(("processes", "terminates"), [("wait", None), ("terminate", True)])
def test_processes_are_ended_where_that_is_declared_only(processes: str, terminates: bool | None) -> None:  # noqa: FBT001 - a column
    node, fleet = FakeNode(), FakeFleet({})
    fleet.nodes["n1"] = node
    stack = make_stack(driver={"version": NEW}, rollout={"drain": {"processes": processes}})
    NodeSteps(context(fleet, plan_drain), {"n1": stack}).run("n1", Phase.RELEASE, Watcher(), threading.Event())

    assert [request.extra_vars.get("grapnel_terminate") for request in fleet.requests] == [terminates]


def test_a_daemon_that_is_no_longer_declared_is_asked_as_well() -> None:
    node = FakeNode()
    for phase in (Phase.RELEASE, Phase.VERIFY, Phase.RESUME):
        assert run_step(node, phase, plugin={"enabled": False}) == StepOutcome()
    assert node.verbs == ["release", "verify", "resume"]


def test_a_driver_that_is_left_alone_is_not_verified() -> None:
    node, watcher = FakeNode(), Watcher()
    assert run_step(node, Phase.VERIFY, watcher, driver={"enabled": False}) == StepOutcome()
    assert node.verbs == []
    assert watcher.seen == [Note("n1", "verify: nothing to compare, the declaration has no driver")]


def test_swap_is_the_apply_of_every_day() -> None:
    outcome = run_step(FakeNode(), Phase.SWAP)
    assert outcome.failure is None
    assert outcome.swapped is not None
    assert (outcome.swapped.status, outcome.swapped.passes) == (Status.CONVERGED, 1)


def test_swap_looks_once_more_whether_the_gpus_are_free() -> None:
    node = FakeNode(holders=[{"pid": 7, "command": "train"}])
    outcome = run_step(node, Phase.SWAP)
    assert outcome.failure is not None
    assert outcome.failure.message == "to install driver, the GPUs have to be free, but GPUs are held by train (7)"
    assert node.packages == []


def test_verify_compares_with_what_is_declared() -> None:
    fleet = FakeFleet({"n1": FakeNode()})
    steps = NodeSteps(context(fleet), {"n1": make_stack(driver={"version": NEW})})
    assert steps.run("n1", Phase.VERIFY, Watcher(), threading.Event()) == StepOutcome()
    (request,) = fleet.requests
    assert (request.playbook.name, request.nodes) == ("verify.yml", ("n1",))
    expectation = {"schema": "grapnel.dev/expectation/v1alpha1", "driverVersion": NEW, "allocation": True}
    assert request.extra_vars == {"grapnel_expectation": expectation}


LAYOUT = {"version": "v1", "mig-configs": {"halves": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}]}}


def test_a_new_mig_layout_is_verified_as_declared_and_not_as_it_was_before() -> None:
    fleet = FakeFleet({"n1": FakeNode()})
    declared = make_stack(driver={"version": NEW}, mig={"layout": "halves", "config": LAYOUT})
    steps = NodeSteps(context(fleet), {"n1": declared})

    assert steps.run("n1", Phase.VERIFY, Watcher(), threading.Event()) == StepOutcome()

    assert [playbook for playbook, _ in fleet.runs] == ["facts", "verify"]


def test_the_expectation_names_the_layout_s_gpus_by_uuid() -> None:
    declared = make_stack(mig={"layout": "halves", "config": LAYOUT})
    gpu = Gpu(address="0000:10:00.0", vendor="10de", device="2330", class_="030200")
    told = MigState(gpus=(MigGpu(index=0, uuid="GPU-0a", enabled=False),))
    facts = msgspec.structs.replace(make_facts(), gpus=(gpu,), mig=told)

    assert render_mig(facts, declared) == {"mig": {"GPU-0a": []}}
    assert render_mig(facts, declared, as_it_is=True) == {}
    assert render_mig(make_facts(), declared) == {}


EXPECTATION = Path(__file__).parents[3] / "docs/contracts/expectation"


@pytest.mark.parametrize(
    ("driver", "expectation"),
    [
        pytest.param(
            {"version": "535.309.01"}, json.loads((EXPECTATION / "good/declared.json").read_text()), id="compute"
        ),
        pytest.param(
            {"version": "535.309.01", "capabilities": ["utility"]},
            json.loads((EXPECTATION / "good/version-only.json").read_text()),
            id="no compute libraries",
        ),
    ],
)
def test_an_expectation_is_what_the_contract_says(driver: dict[str, object], expectation: dict[str, object]) -> None:
    rendered = render_expectation(make_stack(driver=driver).driver)
    jsonschema.validate(rendered, json.loads((EXPECTATION / "schema.json").read_text()))
    assert rendered == expectation


@pytest.mark.parametrize(
    ("phase", "verb"), [(Phase.RELEASE, "release"), (Phase.VERIFY, "verify"), (Phase.RESUME, "resume")]
)
def test_a_verb_that_fails_fails_the_step(phase: Phase, verb: str) -> None:
    outcome = run_step(FakeNode(broken=verb), phase)
    assert outcome.failure is not None
    assert (outcome.failure.status, outcome.failure.message) == (Status.FAILED, "3 of 4 GPUs answer")


def test_a_node_that_cannot_be_reached_fails_the_step() -> None:
    outcome = run_step(FakeNode(reachable=False), Phase.SWAP)
    assert outcome.failure is not None
    assert outcome.failure.status is Status.UNREACHABLE


@pytest.mark.parametrize(
    ("run", "status", "in_swap"),
    [
        pytest.param(RunStatus.CANCELED, Status.CANCELED, Status.CANCELED, id="canceled"),
        pytest.param(RunStatus.ERROR, Status.FAILED, Status.UNREACHABLE, id="nobody could look at the node"),
    ],
)
def test_a_run_that_was_ended_tells_how(run: RunStatus, status: Status, in_swap: Status) -> None:
    fleet = FakeFleet({"n1": FakeNode()}, broken_run=run)
    steps = NodeSteps(context(fleet), {"n1": make_stack()})
    for phase in (Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME):
        outcome = steps.run("n1", phase, Watcher(), threading.Event())
        assert outcome.failure is not None
        assert outcome.failure.status is (in_swap if phase is Phase.SWAP else status)


@pytest.mark.parametrize(
    ("holders", "path"),
    [
        pytest.param([{"command": "x"}], "`$.holders[0]`", id="a process without a number"),
        pytest.param([{"pid": 10**18}], "`$.holders[0].pid`", id="no number of a process"),
        pytest.param([{"pid": 7.0}], "`$.holders[0].pid`", id="a fraction of a process"),
        pytest.param([{"pid": 7, "pod_uid": "u\x1b[2J"}], "`$.holders[0].pod_uid`", id="no uid of a pod"),
        pytest.param([{"pid": 7}] * 20_000, "`$.holders`", id="more than a machine has"),
        pytest.param("none", "`$.holders`", id="no list"),
    ],
)
def test_an_answer_that_cannot_be_read_fails_the_step(holders: list[dict[str, object]], path: str) -> None:
    outcome = run_step(FakeNode(answer={"released": True, "holders": holders}), Phase.RELEASE)
    assert outcome.failure is not None
    assert outcome.failure.message.startswith("the node daemon's answer to release cannot be read")
    assert path in outcome.failure.message


def test_names_of_holders_are_made_printable() -> None:
    node = FakeNode(holders=[{"pid": 7, "command": "\x1b[2Jtrain" + "x" * 500, "unit": "a\nb.service"}])
    (holder,) = run_step(node, Phase.RELEASE).holders
    assert holder.command.startswith("\\x1b[2Jtrain")
    assert (len(holder.command), holder.unit) == (128, r"a\nb.service")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b'{"released": true, "released": false}', id="a key twice"),
        pytest.param(b'{"released": true, "z": ' + b"[" * 100_000, id="deep"),
        pytest.param(b"", id="nothing"),
        pytest.param(None, id="no answer"),
    ],
)
def test_an_answer_that_is_no_document_is_an_error(answer: bytes | None) -> None:
    with pytest.raises(AnswerError, match="the node daemon's answer to release cannot be read"):
        parse_release_result(answer)


def test_a_swap_starts_from_the_plan_that_was_shown_and_verifies_in_the_same_run() -> None:
    node = FakeNode()
    fleet = FakeFleet({"n1": node})
    made, cancel = context(fleet, plan_drain), threading.Event()
    seen = assess(made, ["n1"], Watcher(), cancel)["n1"]
    assert isinstance(seen, Assessment)
    held = Assessment(
        msgspec.structs.replace(seen.facts, device_holders=(DeviceHolder(pid=7, command="x"),)), seen.plan
    )
    steps = NodeSteps(made, {"n1": make_stack(driver={"version": NEW})}, {"n1": held})
    fleet.runs.clear()

    outcomes = [steps.run("n1", phase, Watcher(), cancel) for phase in (Phase.SWAP, Phase.VERIFY)]

    assert [outcome.failure for outcome in outcomes] == [None, None]
    assert [playbook for playbook, _ in fleet.runs] == ["apply"]
    assert fleet.requests[-1].extra_vars["grapnel_expectation"] == {
        "schema": "grapnel.dev/expectation/v1alpha1",
        "driverVersion": NEW,
        "allocation": True,
    }


def test_a_driver_that_was_not_as_expected_after_the_swap_is_verified_again() -> None:
    fleet = FakeFleet({"n1": FakeNode(broken="verify")})
    steps = NodeSteps(context(fleet, plan_drain), {"n1": make_stack(driver={"version": NEW})})

    swapped = steps.run("n1", Phase.SWAP, Watcher(), threading.Event())
    verified = steps.run("n1", Phase.VERIFY, Watcher(), threading.Event())

    assert swapped.failure is None
    assert verified.failure is not None
    assert verified.failure.message == "3 of 4 GPUs answer"


LOOKED = ["facts", "driver_wait", "facts"]  # whether its program is at work, cannot be told from what it has written


@pytest.mark.parametrize(
    ("half_done", "runs"),
    [
        pytest.param("another", [*LOOKED, "driver", "facts", "apply"], id="to another driver"),
        pytest.param("c4a9e", [*LOOKED, "apply"], id="to the declared one"),
    ],
)
def test_a_swap_that_was_cut_short_is_undone_before_another_one(half_done: str, runs: list[str]) -> None:
    node = FakeNode(staged="c4a9e", half_done=half_done)
    fleet = FakeFleet({"n1": node})
    steps = NodeSteps(context(fleet, plan_staged), {"n1": make_stack(driver={"version": NEW})})

    outcome = steps.run("n1", Phase.SWAP, Watcher(), threading.Event())

    assert outcome.failure is None
    assert [playbook for playbook, _ in fleet.runs] == runs
    assert node.packages == ["driver"]


def test_a_way_back_that_fails_before_another_swap_is_its_failure() -> None:
    fleet = FakeFleet({"n1": FakeNode(staged="c4a9e", half_done="another", broken="driver")})
    steps = NodeSteps(context(fleet, plan_staged), {"n1": make_stack(driver={"version": NEW})})

    outcome = steps.run("n1", Phase.SWAP, Watcher(), threading.Event())

    assert outcome.failure is not None
    assert [playbook for playbook, _ in fleet.runs] == [*LOOKED, "driver", *LOOKED, "driver", *LOOKED]
    assert outcome.failure.status is Status.UNREACHABLE, "its program has not come to its end"


@pytest.mark.parametrize("answer", [b"", b"null", b"[1]", b'{"ok": 1}', b'{"ok": false}', b"[" * 100_000])
def test_only_a_clear_answer_is_taken_for_verified(answer: bytes) -> None:
    assert not is_verified(answer)
