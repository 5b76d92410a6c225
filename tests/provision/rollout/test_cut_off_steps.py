"""Steps whose Job, connection or ansible-playbook ends while the node's own program goes on: its word counts alone."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.model import Failure, Note, Status
from provision.apply.runner import CutOff, RunFinished, RunStatus, TaskDone, TaskOutcome, TaskStarted
from provision.rollout.changes.driver_verbs import VerbSteps
from provision.rollout.changes.plan import DriverVerb
from provision.rollout.changes.reboot_steps import RebootSteps
from provision.rollout.model import Origin, Phase
from provision.rollout.states import stepped
from provision.rollout.step import StepOutcome
from provision.rollout.steps.node_steps import NodeSteps
from tests.provision.apply.fakes import Watcher, context, plan_staged, raw_facts
from tests.provision.rollout.fakes import NEW, NOON, OLD, record, state, view
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.apply.runner import Event, RunRequest
    from provision.rollout.step import Steps

CHANGE, FORMER = "c4a9e", "0123456789ab"
OLDER = "470.256.02"
_BEFORE = {NEW: OLD, OLD: OLDER}
REASON = "load: Key was rejected by service"


class Cut(Enum):
    """When what calls the node's program ends, of one call."""

    NOT = auto()
    BEFORE = auto()  # nothing has begun by then
    AT_WORK = auto()  # the program goes on
    KILLED = auto()  # and the program with it
    AFTER = auto()  # it has come to its end, and nobody has heard of that
    REPEATED = auto()  # the same, and what follows begins the run again, as another pod of a Job does


class Way(Enum):
    """How it shows that it has ended."""

    MODULE = RunFinished(RunStatus.FAILED)
    ANSIBLE = RunFinished(RunStatus.FAILED, message="ansible-playbook ended with status -9")
    RUNNER = RunFinished(RunStatus.ERROR, message="the log of its Job cannot be followed: lines 3 to 4 are lost")
    TIME = RunFinished(RunStatus.TIMED_OUT, message="took longer than its time limit")
    JOB = RunFinished(RunStatus.FAILED, message="its Job was deleted by somebody while it ran")

    def tell(self, task: str) -> Iterator[Event]:
        """Yield the last events of a run that was cut off in this way."""
        if self is Way.MODULE:
            yield TaskDone("n1", task, TaskOutcome.FAILED, message="MODULE FAILURE: ended with status 137")
        if self is Way.JOB:
            yield CutOff("n1", "Job grapnel-1 was cut off (its pod was deleted)")
            yield TaskDone("n1", task, TaskOutcome.UNREACHABLE, message=self.value.message)
        yield self.value


@dataclass
class Machine:
    """A node with a driver program, which is called by runs that are ``cuts``, one after the other.

    A swap ends in ``ends``, and a way back in ``back_ends``; facts cannot be had ``blind`` times.
    """

    cuts: list[Cut] = field(default_factory=list)
    way: Way = Way.ANSIBLE
    ends: str = "done"
    back_ends: str = "done"
    blind: int = 0
    driver: str = OLD
    run_record: dict[str, Any] | None = None
    at_work: str = ""
    told: list[str] = field(default_factory=list)
    runs: int = 0

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Run a playbook, as far as it comes."""
        del cancel
        name = request.playbook.stem
        self.told.append(name)
        yield TaskStarted("n1", name)
        if name == "facts" and self.blind:
            self.blind -= 1
            yield from Way.ANSIBLE.tell(name)
            return
        if name == "driver_wait":
            self._end()
        elif name in {"apply", "driver"}:
            verb = "swap" if name == "apply" else "back"
            cut = self.cuts.pop(0) if self.cuts else Cut.NOT
            self._call(verb, cut)
            current = self._facts()["driver"]["current"]
            if cut is Cut.REPEATED and request.extra_vars.get("grapnel_driver_undone") in {current, "", None}:
                self._call(verb, Cut.NOT)
            if cut not in {Cut.NOT, Cut.REPEATED}:
                yield from self.way.tell(name)
                return
            assert self.run_record is not None
            if self.run_record["state"] not in {"done", "returned" if verb == "back" else "done"}:
                message = f"the driver's {verb} ended {self.run_record['state']}: {REASON} (see the node)"
                yield TaskDone("n1", name, TaskOutcome.FAILED, message=message)
                yield RunFinished(RunStatus.FAILED)
                return
        answer = {"released": True, "holders": []}
        values = {"facts": json.dumps(self._facts()).encode(), "daemon": json.dumps(answer).encode()}
        yield TaskDone("n1", name, TaskOutcome.OK, values=values)
        yield RunFinished(RunStatus.SUCCESSFUL)

    def _call(self, verb: str, cut: Cut) -> None:
        if cut is Cut.BEFORE:
            return
        if self.run_record is None or self.run_record["state"] != "running":
            self.runs += 1
            self.run_record = {"run": f"run-{self.runs}", "verb": verb, "change": CHANGE, "state": "running"}
        self.at_work = "" if cut is Cut.KILLED else verb
        if cut in {Cut.NOT, Cut.AFTER, Cut.REPEATED}:
            self._end()

    def _end(self) -> None:
        """Let what is at work come to its end."""
        if not self.at_work:
            return
        assert self.run_record is not None
        state = self.ends if self.at_work == "swap" else self.back_ends
        self.run_record = {**self.run_record, "state": state, "reason": "" if state == "done" else REASON}
        self.at_work = ""
        if state == "done":
            self.driver = NEW if self.run_record["verb"] == "swap" else _BEFORE[self.driver]

    def _facts(self) -> dict[str, Any]:
        packages = ["driver"] if self.driver == NEW else []
        driver = {
            "staged": [{"id": CHANGE, "version": NEW, "complete": True}],
            "current": CHANGE if self.driver == NEW else FORMER,
            "back": OLD if self.driver == NEW or self.run_record is not None else None,
            "run": self.run_record,
        }
        module = {"loaded": True, "version": self.driver, "flavour": "proprietary"}
        return {**raw_facts("n1", packages, []), "driver": driver, "module": module}


def steps_on(machine: Machine) -> NodeSteps:
    return NodeSteps(context(machine, plan_staged), {"n1": make_stack(driver={"version": NEW})})  # type: ignore[arg-type]  # a runner as well


def take(steps: Steps, phase: Phase = Phase.SWAP, back: Origin | None = None, limit: int = 10) -> StepOutcome:
    """Take a step as the engine does: again while the node cannot be reached."""
    for _ in range(limit):
        outcome = steps.run("n1", phase, Watcher(), threading.Event(), back)
        if outcome.failure is None or outcome.failure.status is not Status.UNREACHABLE:
            return outcome
    raise AssertionError(f"still not known: {outcome}")


def failure(outcome: StepOutcome) -> Failure:
    assert outcome.failure is not None
    return outcome.failure


@pytest.mark.parametrize("way", list(Way), ids=lambda way: way.name.lower())
@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AT_WORK, Cut.KILLED, Cut.AFTER], ids=lambda cut: cut.name.lower())
def test_a_good_swap_is_done_whenever_and_however_what_called_it_ends(way: Way, cut: Cut) -> None:
    """It was rolled back at once, while the node's program came to a good end."""
    machine = Machine([cut], way)

    outcome = take(steps_on(machine))

    assert outcome.failure is None
    assert (machine.driver, machine.runs) == (NEW, 1), "it was swapped once"
    assert machine.told.count("driver") == 0


@pytest.mark.parametrize("way", list(Way), ids=lambda way: way.name.lower())
@pytest.mark.parametrize("cut", [Cut.AT_WORK, Cut.AFTER], ids=lambda cut: cut.name.lower())
@pytest.mark.parametrize("ends", ["failed", "returned", "quarantined"])
def test_a_bad_swap_is_told_in_the_words_of_the_node_however_what_called_it_ends(way: Way, cut: Cut, ends: str) -> None:
    machine = Machine([cut], way, ends)

    found = failure(take(steps_on(machine)))

    assert found.status is Status.FAILED
    assert found.message.startswith(f"the driver's swap ended {ends}: {REASON}")
    assert machine.runs == 1, "it was not tried again by itself"


def test_a_failure_that_the_program_has_told_is_passed_on_as_it_is() -> None:
    machine = Machine(ends="returned")
    found = failure(take(steps_on(machine)))
    assert (found.status, found.message) == (
        Status.FAILED,
        f"the driver's swap ended returned: {REASON} (see the node)",
    )
    assert machine.told == ["facts", "apply", "facts"]


def test_what_is_still_at_work_is_waited_for_and_not_called_again() -> None:
    machine = Machine([Cut.AT_WORK], Way.JOB)
    steps = steps_on(machine)

    assert failure(steps.run("n1", Phase.SWAP, Watcher(), threading.Event())).status is Status.UNREACHABLE
    assert machine.told == ["facts", "apply"]
    assert take(steps).failure is None
    assert machine.told[2:5] == ["facts", "driver_wait", "facts"]


def test_a_failure_beside_the_program_counts_where_it_comes_again() -> None:
    machine = Machine([Cut.BEFORE] * 10, Way.MODULE)

    found = failure(take(steps_on(machine)))

    assert (found.status, found.message) == (Status.FAILED, "MODULE FAILURE: ended with status 137")
    assert machine.told.count("apply") == 2
    assert machine.driver == OLD


def test_a_program_that_is_killed_again_and_again_is_no_verdict() -> None:
    """Nobody knows which driver the node has: the engine waits as long as for a node that is lost."""
    machine = Machine([Cut.KILLED] * 10)
    steps = steps_on(machine)
    for _ in range(2):
        assert failure(steps.run("n1", Phase.SWAP, Watcher(), threading.Event())).status is Status.UNREACHABLE


def test_a_node_that_cannot_be_looked_at_is_looked_at_again() -> None:
    machine = Machine([Cut.AT_WORK], blind=3)
    steps = steps_on(machine)

    assert failure(steps.run("n1", Phase.SWAP, Watcher(), threading.Event())).status is Status.UNREACHABLE
    assert take(steps).failure is None
    assert machine.driver == NEW


def test_another_process_hears_of_a_swap_that_it_has_not_begun() -> None:
    """A controller was killed, and its successor finds the program at work."""
    machine = Machine([Cut.AT_WORK], Way.JOB, ends="returned")
    steps_on(machine).run("n1", Phase.SWAP, Watcher(), threading.Event())

    found = failure(take(steps_on(machine)))

    assert found.message.startswith(f"the driver's swap ended returned: {REASON}")
    assert machine.runs == 1


def test_another_try_does_not_hear_of_the_failure_of_the_one_before() -> None:
    """The node was given up while nobody knew; somebody corrects what is wrong, and asks for another try."""
    machine = Machine([Cut.AT_WORK], Way.JOB, ends="returned")
    steps = steps_on(machine)
    steps.run("n1", Phase.SWAP, Watcher(), threading.Event())
    machine._end()
    machine.ends = "done"

    assert take(steps, Phase.RELEASE).failure is None
    assert take(steps).failure is None
    assert (machine.driver, machine.runs) == (NEW, 2)


@pytest.mark.parametrize("way", list(Way), ids=lambda way: way.name.lower())
@pytest.mark.parametrize("cut", [each for each in Cut if each is not Cut.NOT], ids=lambda cut: cut.name.lower())
def test_a_way_back_comes_to_its_end_whenever_and_however_what_called_it_ends(way: Way, cut: Cut) -> None:
    """The node was quarantined although it had its former driver."""
    machine = Machine([cut], way, driver=NEW)

    outcome = take(steps_on(machine), Phase.ROLLBACK, Origin(OLD, FORMER))

    assert outcome.failure is None
    assert (machine.driver, machine.runs) == (OLD, 1)


@pytest.mark.parametrize("cut", [Cut.AT_WORK, Cut.AFTER], ids=lambda cut: cut.name.lower())
def test_a_way_back_that_fails_is_told_in_the_words_of_the_node(cut: Cut) -> None:
    machine = Machine([cut], back_ends="quarantined", driver=NEW)

    found = failure(take(steps_on(machine), Phase.ROLLBACK, Origin(OLD, FORMER)))

    assert found.status is Status.FAILED
    assert found.message.startswith(f"the driver's back ended quarantined: {REASON}")
    assert machine.runs == 1


def test_a_swap_that_is_at_work_has_ended_before_the_way_back_begins() -> None:
    machine = Machine([Cut.AT_WORK], Way.JOB)
    steps_on(machine).run("n1", Phase.SWAP, Watcher(), threading.Event())

    assert take(steps_on(machine), Phase.ROLLBACK, Origin(OLD, FORMER)).failure is None
    assert machine.driver == OLD


@pytest.mark.parametrize(
    ("phase", "way"),
    [(Phase.RELEASE, Way.ANSIBLE), (Phase.VERIFY, Way.RUNNER), (Phase.RESUME, Way.MODULE)],
)
def test_a_daemon_that_nobody_could_ask_is_asked_again(phase: Phase, way: Way) -> None:
    """A driver that was good was rolled back, as the process that was to verify it had been killed."""

    @dataclass
    class Clumsy(Machine):
        left: int = 1

        def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
            if request.playbook.stem == phase.value and self.left:
                self.left -= 1
                yield from way.tell(phase.value)
                return
            yield from super().run(request, cancel)

    assert take(steps_on(Clumsy()), phase).failure is None


def test_people_are_told_what_was_cut_off() -> None:
    machine, watcher = Machine([Cut.AT_WORK], Way.JOB), Watcher()
    steps_on(machine).run("n1", Phase.SWAP, watcher, threading.Event())
    (note,) = [each for each in watcher.seen if isinstance(each, Note)]
    assert note == Note("n1", "Job grapnel-1 was cut off (its pod was deleted)", reason="JobCutOff")


@pytest.mark.parametrize("way", list(Way), ids=lambda way: way.name.lower())
@pytest.mark.parametrize("cut", [each for each in Cut if each is not Cut.NOT], ids=lambda cut: cut.name.lower())
def test_a_rollback_that_somebody_asked_for_leads_no_further_than_asked(way: Way, cut: Cut) -> None:
    """It was called again after its connection was lost, and went back from the driver that it had brought back."""
    machine = Machine([cut], way, driver=NEW)
    steps = VerbSteps(steps_on(machine), DriverVerb.BACK, {"n1": OLD}, {"n1": CHANGE})

    assert take(steps).failure is None
    assert (machine.driver, machine.runs) == (OLD, 1)


def test_a_rollback_that_somebody_asked_for_fails_in_the_words_of_the_node() -> None:
    machine = Machine(back_ends="quarantined", driver=NEW)
    steps = VerbSteps(steps_on(machine), DriverVerb.BACK, {"n1": OLD}, {"n1": CHANGE})

    assert failure(take(steps)).message == f"the driver's back ended quarantined: {REASON} (see the node)"
    assert machine.runs == 1


def test_a_reboot_whose_caller_was_ended_is_looked_at_again() -> None:
    """It had rebooted, and was left failed."""

    @dataclass
    class Rebooted(Machine):
        left: int = 1

        def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
            if request.playbook.stem == "reboot" and self.left:
                self.left -= 1
                yield from Way.ANSIBLE.tell("reboot")
                return
            yield from super().run(request, cancel)

    steps = RebootSteps(steps_on(Rebooted()), {"n1": "b1"})
    assert take(steps).failure is None


def test_a_step_that_was_ended_is_tried_again_and_taken_for_no_failure() -> None:
    canceled = StepOutcome(failure=Failure(Status.CANCELED, "apply again to finish"))
    after = stepped(state("n1", view("n1", record(Phase.SWAP))), Phase.SWAP, canceled, NOON)
    assert after.step is not None
    assert after.step.is_unreachable
