"""What is written down of what happens."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, cast

from provision.apply.model import Assessment, Failure, NodeFinished, NodeResult, NodeTask, Note, PassStarted, Status
from provision.apply.runner import TaskDone, TaskOutcome, TaskStarted
from provision.report.runs import events as happened
from provision.report.runs.events import decode
from provision.report.runs.record import RunRecord
from provision.rollout.interface.progress import NodeWaits, PhaseEntered
from provision.rollout.model import Phase
from tests.provision.apply.fakes import facts_of, plan_packages

if TYPE_CHECKING:
    from provision.rollout.interface.progress import RolloutProgress


class Ticking:
    def __init__(self) -> None:
        self.now = datetime(2026, 5, 4, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def written(*progress: RolloutProgress) -> list[happened.RunEvent]:
    file = io.BytesIO()
    heard: list[RolloutProgress] = []
    observe = RunRecord(file, clock=Ticking()).observing(heard.append)
    for each in progress:
        observe(each)
    assert heard == list(progress), "everybody else hears it as well"
    return read(file)


def read(file: io.BytesIO) -> list[happened.RunEvent]:
    return [event for line in file.getvalue().splitlines() if (event := decode(line)) is not None]


def task(name: str = "restart containerd", *, is_step: bool = True, gathering: bool = False) -> NodeTask:
    return NodeTask(TaskStarted("n1", name, "grapnel.node.runtime", is_step), gathering)


def done(
    outcome: TaskOutcome, name: str = "restart containerd", *, is_step: bool = True, message: str = ""
) -> NodeTask:
    event = TaskDone("n1", name, outcome, "grapnel.node.runtime", message, is_step=is_step)
    return NodeTask(event, gathering=False)


def test_a_step_and_how_long_it_took() -> None:
    began, ended = written(task(), done(TaskOutcome.CHANGED))

    assert isinstance(began, happened.StepBegan)
    assert isinstance(ended, happened.StepEnded)
    assert (began.step, ended.step, ended.seconds, ended.outcome) == (
        *("runtime: restart containerd",) * 2,
        1,
        "changed",
    )


def test_what_only_arranges_is_no_step_unless_it_fails() -> None:
    quiet = [task("include", is_step=False), done(TaskOutcome.OK, "include", is_step=False)]
    assert written(*quiet, task("gather facts", gathering=True)) == []

    (failed,) = written(
        task("validate", is_step=False), done(TaskOutcome.FAILED, "validate", is_step=False, message="no such key")
    )
    assert isinstance(failed, happened.StepEnded)
    assert failed.message == "no such key"


def test_a_wait_is_told_once_and_not_for_every_minute_of_a_job() -> None:
    waits = [NodeWaits("n1", f"job 12 of ada (0:{left:02} left)", is_out=True) for left in range(30, 20, -1)]
    found = written(*waits, NodeWaits("n1", ""), NodeWaits("n1", ""))

    assert [event.reason for event in found if isinstance(event, happened.Waited)] == ["job 12 of ada", ""]


def test_phases_passes_and_notes() -> None:
    found = written(
        PassStarted("n1", 2, 4),
        PhaseEntered("n1", Phase.SWAP),
        PhaseEntered("n1", Phase.FAILED, "no GPU"),
        Note("", "x"),
    )

    assert [type(event) for event in found] == [
        happened.PassBegan,
        happened.PhaseBegan,
        happened.PhaseBegan,
        happened.Noted,
    ]


def test_a_result_that_was_heard_is_not_written_again() -> None:
    file = io.BytesIO()
    record = RunRecord(file, clock=Ticking())
    finished = NodeResult("n1", Status.CONVERGED, 1, 3)
    record.observing(lambda _: None)(NodeFinished(finished))
    record.results([finished, NodeResult("n2", Status.UNCHANGED)])

    assert [event.node for event in read(file) if isinstance(event, happened.NodeEnded)] == ["n1", "n2"]


def test_equal_plans_are_one_line() -> None:
    file = io.BytesIO()
    answers: dict[str, Assessment | Failure] = {
        name: Assessment(facts_of(name), plan_packages(name, facts_of(name))) for name in ("n1", "n2")
    }
    RunRecord(file, clock=Ticking()).planned(answers | {"n3": Failure(Status.UNREACHABLE, "no route")})

    (planned,) = read(file)
    assert isinstance(planned, happened.Planned)
    assert (planned.nodes, len(planned.items)) == (("n1", "n2"), 2)


class FullDisk(io.BytesIO):
    def write(self, _data: object) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_ends_the_record_and_not_the_run() -> None:
    record = RunRecord(cast("IO[bytes]", FullDisk()), clock=Ticking())
    record.observing(lambda _: None)(Note("", "x"))
    record.results([NodeResult("n1", Status.CONVERGED)])
    record.end(0)

    assert record.trouble == "the run is not written down any more: no space left on device"
    assert len(record.kept) == 3, "the document of --json is made of what is kept"


def test_steps_of_a_run_without_end_are_bounded_and_results_are_not() -> None:
    file = io.BytesIO()
    record = RunRecord(file, clock=Ticking(), max_bytes=2000)
    observe = record.observing(lambda _: None)
    for _ in range(100):
        observe(task())
        observe(done(TaskOutcome.CHANGED))
    record.results([NodeResult("n1", Status.CONVERGED)])

    kinds = [type(event) for event in read(file)]
    assert kinds.count(happened.StepBegan) < 20
    assert kinds[-2:] == [happened.Cut, happened.NodeEnded]
