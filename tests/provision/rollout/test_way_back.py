"""Bringing back the driver that a node had before its upgrade, and never one further."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.model import Status
from provision.apply.runner import RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.rollout.decision.snapshot import Holder
from provision.rollout.model import Origin, Phase
from provision.rollout.step import StepOutcome
from provision.rollout.steps.node_steps import NodeSteps
from tests.provision.apply.fakes import FakeFleet, FakeNode, Watcher, context, raw_facts
from tests.provision.rollout.fakes import NEW, OLD
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.apply.runner import Event, RunRequest

OLDER = "525.147.05"
BEFORE, CHANGE, FIRST, OPEN = "0123456789ab", "ba9876543210", "aaaaaaaaaaaa", "bbbbbbbbbbbb"
VERSIONS = {"": "", FIRST: OLDER, BEFORE: OLD, OPEN: OLD, CHANGE: NEW}
TRAIN: dict[str, object] = {"pid": 7, "command": "train"}


@dataclass
class Machine:
    """A node whose driver program keeps a chain of changes, the present one last; `back` drops that one."""

    chain: list[str]
    run: dict[str, object] | None = None
    fails: str = ""
    is_reachable: bool = True
    daemon: FakeNode = field(default_factory=FakeNode)
    told: list[str] = field(default_factory=list)
    requests: list[RunRequest] = field(default_factory=list)

    def run_playbook(self, request: RunRequest) -> Iterator[Event]:
        self.requests.append(request)
        self.told.append(request.playbook.stem)
        if not self.is_reachable:
            yield TaskDone("n1", "Gather facts", TaskOutcome.UNREACHABLE, message="no route to n1")
            yield RunFinished(RunStatus.FAILED)
            return
        if request.playbook.stem == "driver":
            yield from self._go_back(request)
            return
        if request.playbook.stem == "driver_wait":
            yield RunFinished(RunStatus.SUCCESSFUL)
            return
        yield TaskDone("n1", "Gather facts", TaskOutcome.OK, values={"facts": json.dumps(self._facts()).encode()})
        yield RunFinished(RunStatus.SUCCESSFUL)

    def _go_back(self, request: RunRequest) -> Iterator[Event]:
        assert request.extra_vars["grapnel_driver_verb"] == "back"
        assert request.extra_vars["grapnel_is_out_of_service"] is True
        if self.fails:
            yield TaskDone("n1", "Change the driver", TaskOutcome.FAILED, message=self.fails)
            yield RunFinished(RunStatus.FAILED)
            return
        undone = self.chain.pop()
        self.run = {"verb": "back", "state": "done", "change": undone}
        yield TaskDone("n1", "Change the driver", TaskOutcome.CHANGED)
        yield RunFinished(RunStatus.SUCCESSFUL)

    def _facts(self) -> dict[str, object]:
        version = VERSIONS[self.chain[-1]]
        driver: dict[str, Any] = {"current": self.chain[-1] or None, "managed": True, "run": self.run}
        if len(self.chain) > 1:
            driver["back"] = VERSIONS[self.chain[-2]]
        module = {"loaded": bool(version), "version": version or None, "flavour": "proprietary"}
        return {**raw_facts("n1", [], []), "driver": driver, "module": module}


@dataclass
class Runner:
    """Answers for the machine, and for its node daemon."""

    machine: Machine

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        if request.playbook.stem in ("facts", "driver", "driver_wait"):
            yield from self.machine.run_playbook(request)
            return
        self.machine.told.append(request.playbook.stem)
        self.machine.requests.append(request)
        yield from FakeFleet({"n1": self.machine.daemon}).run(request, cancel)


def go_back(machine: Machine, origin: Origin, phase: Phase = Phase.ROLLBACK, **driver: object) -> StepOutcome:
    stacks = {"n1": make_stack(driver={"version": NEW, **driver})}
    steps = NodeSteps(context(Runner(machine)), stacks, verified={"n1"})  # type: ignore[arg-type] # a runner as well
    return steps.run("n1", phase, Watcher(), threading.Event(), origin)


def swap(state: str, **more: object) -> dict[str, object]:
    return {"verb": "swap", "state": state, "change": CHANGE, **more}


@pytest.mark.parametrize(
    ("chain", "run", "origin"),
    [
        pytest.param([FIRST, BEFORE, CHANGE], swap("done"), Origin(OLD, BEFORE), id="after a swap that was done"),
        pytest.param([BEFORE, CHANGE], swap("running"), Origin(OLD, BEFORE), id="after a swap that was cut short"),
        pytest.param([BEFORE, CHANGE], swap("quarantined"), Origin(OLD, BEFORE), id="after one that left it half-way"),
        pytest.param(["", CHANGE], swap("done"), Origin("", ""), id="from a first driver"),
        pytest.param([BEFORE, CHANGE], swap("done"), Origin(OLD), id="where the change was not remembered"),
        pytest.param([FIRST, BEFORE, CHANGE], swap("done"), Origin(OLDER, FIRST), id="two changes since"),
    ],
)
def test_the_driver_goes_back_to_what_the_node_had(chain: list[str], run: dict[str, object], origin: Origin) -> None:
    machine = Machine(list(chain), run)

    assert go_back(machine, origin) == StepOutcome()
    assert VERSIONS[machine.chain[-1]] == origin.version
    looked = ["facts", "driver_wait", "facts"] if run["state"] == "running" else ["facts"]
    assert machine.told[: len(looked) + 2] == [*looked, "release", "driver"], (
        "nothing is exchanged while GPUs are offered"
    )
    assert go_back(machine, origin) == StepOutcome(), "done again it does no harm"
    assert VERSIONS[machine.chain[-1]] == origin.version


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(None, id="nothing was begun"),
        pytest.param(swap("failed"), id="the swap has changed nothing"),
        pytest.param(swap("returned"), id="the swap has gone back by itself"),
        pytest.param({"verb": "back", "state": "done", "change": CHANGE}, id="killed after it went back"),
        pytest.param(swap("done", change=BEFORE), id="the last run is that of the upgrade before"),
    ],
)
def test_a_node_that_has_its_former_driver_is_left_alone(run: dict[str, object] | None) -> None:
    machine = Machine([FIRST, BEFORE], run)

    assert go_back(machine, Origin(OLD, BEFORE)) == StepOutcome()
    assert (machine.chain, machine.told) == ([FIRST, BEFORE], ["facts"])


def test_a_change_that_keeps_the_version_is_undone_as_well() -> None:
    machine = Machine([BEFORE, OPEN], swap("done", change=OPEN))

    assert go_back(machine, Origin(OLD, BEFORE)) == StepOutcome()
    assert machine.chain == [BEFORE]


def test_without_a_way_back_it_says_so() -> None:
    machine = Machine([CHANGE], swap("quarantined", reason="load: Key was rejected by service"))

    failure = go_back(machine, Origin(OLD, BEFORE)).failure
    assert failure is not None
    assert failure.message.startswith("there is no way back")
    assert failure.message.endswith("its last swap ended quarantined: load: Key was rejected by service")
    assert machine.told == ["facts"], "a node that stays as it is need not be disturbed"


def test_a_way_back_that_leads_elsewhere_ends_there() -> None:
    machine = Machine(["", FIRST, BEFORE, CHANGE], swap("done"))

    failure = go_back(machine, Origin(OLD, "cccccccccccc")).failure
    assert failure is not None
    assert failure.message == f"after 2 driver changes back, the node has {OLDER}, not its former driver"
    assert machine.chain == ["", FIRST]


def test_a_program_that_fails_is_quoted() -> None:
    machine = Machine([BEFORE, CHANGE], swap("done"), fails="the driver's back ended quarantined: load: no device")

    failure = go_back(machine, Origin(OLD, BEFORE)).failure
    assert failure is not None
    assert (failure.status, failure.message) == (Status.FAILED, "the driver's back ended quarantined: load: no device")


def test_a_node_that_cannot_be_reached_is_told_apart() -> None:
    failure = go_back(Machine([BEFORE, CHANGE], is_reachable=False), Origin(OLD, BEFORE)).failure
    assert failure is not None
    assert failure.status is Status.UNREACHABLE


def test_a_process_that_holds_a_gpu_is_told_and_nothing_is_exchanged() -> None:
    machine = Machine([BEFORE, CHANGE], swap("done"), daemon=FakeNode(holders=[TRAIN]))

    assert go_back(machine, Origin(OLD, BEFORE)) == StepOutcome(holders=(Holder(pid=7, command="train"),))
    assert machine.chain == [BEFORE, CHANGE]


def test_it_contacts_no_package_source() -> None:
    machine = Machine([BEFORE, CHANGE], swap("done"))
    go_back(machine, Origin(OLD, BEFORE))

    assert all(one.extra_vars["grapnel_is_offline"] is True for one in machine.requests if one.playbook.stem == "facts")


def test_the_former_driver_is_verified_and_not_the_declared_one() -> None:
    machine = Machine([BEFORE])

    assert go_back(machine, Origin(OLD, BEFORE), Phase.VERIFY) == StepOutcome()
    (request,) = machine.requests
    expectation = request.extra_vars["grapnel_expectation"]
    assert isinstance(expectation, dict)
    assert (request.playbook.stem, expectation["driverVersion"]) == ("verify", OLD)


@pytest.mark.parametrize("phase", [Phase.VERIFY, Phase.RESUME])
def test_a_node_that_had_no_driver_has_nothing_to_verify_or_to_offer(phase: Phase) -> None:
    machine = Machine([""])

    assert go_back(machine, Origin("", ""), phase) == StepOutcome()
    assert machine.told == []


def test_what_the_swap_has_verified_does_not_stand_for_the_former_driver() -> None:
    machine = Machine([BEFORE, CHANGE], swap("done"))
    steps = NodeSteps(
        context(Runner(machine)),  # type: ignore[arg-type] # a runner as well
        {"n1": make_stack(driver={"version": NEW})},
        verified={"n1"},
    )
    for phase in (Phase.ROLLBACK, Phase.VERIFY):
        steps.run("n1", phase, Watcher(), threading.Event(), Origin(OLD, BEFORE))

    assert machine.told[-1] == "verify"
    assert steps.verified == set()
