"""What is asked of Slurm in which words, and what its refusals mean; the answers are those of real ones."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from provision.cluster.errors import ForbiddenError, SchedulerError
from provision.cluster.schedulers.cluster import SchedulerNode
from provision.cluster.schedulers.program import Program, Ran
from provision.cluster.schedulers.slurm.client import SlurmScheduler
from provision.rollout.errors import UnreachableError
from provision.rollout.interface.cluster import NodeProblem
from tests.provision.rollout.fakes import view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.rollout.model import NodeView

ANSWERS = Path(__file__).with_name("answers")
VIEWS = {name: view(name) for name in ("gpu01", "gpu02", "gpu03", "gpu04")}
NODES = "scontrol show node"
JOBS = "squeue"


@dataclass
class FakeProgram:
    """Answers like a Slurm that said this once; ``refusals`` are ends of commands by their beginning."""

    version: str = "24.11"
    refusals: dict[str, Ran] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str]) -> Ran:
        said = " ".join(argv)
        self.asked.append(said)
        for beginning, refusal in self.refusals.items():
            if said.startswith(beginning):
                return refusal
        for beginning, what in ((NODES, "nodes"), (JOBS, "jobs"), ("scontrol show reservation", "reservations")):
            if said.startswith(beginning):
                chosen = said.partition("--nodelist=")[2].split(",")
                if what == "jobs" and chosen != [""] and what not in self.answers:
                    lines = (ANSWERS / f"{self.version}-jobs.txt").read_text().splitlines()
                    return Ran(code=0, output="\n".join(one for one in lines if one.split(",")[4] in chosen).encode())
                text = self.answers.get(what) or (ANSWERS / f"{self.version}-{what}.txt").read_text()
                return Ran(code=0, output=text.encode())
        return Ran(code=0)


def connect(program: FakeProgram, *command: str, reservation: str = "") -> SlurmScheduler:
    return SlurmScheduler(cast("Program", program), command, {}, reservation=reservation)


def node_of(scheduler: SlurmScheduler, name: str, views: dict[str, NodeView] = VIEWS) -> SchedulerNode:
    found = scheduler.look(views)[name]
    assert isinstance(found, SchedulerNode), found
    return found


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_a_fleet_is_looked_at_with_three_commands(version: str) -> None:
    program = FakeProgram(version)

    found = connect(program).look(VIEWS)

    assert [asked.split(" --")[0] for asked in program.asked] == [NODES, JOBS, "scontrol show reservation"]
    ours, others, fans, away = (cast("SchedulerNode", found[name]) for name in VIEWS)
    assert (ours.is_drained, ours.is_ours, [job.id for job in ours.jobs]) == (True, True, ["job 1"])
    assert (others.is_drained, [job.id for job in others.jobs]) == (False, ["job 2"])
    assert (fans.is_drained, fans.is_ours, fans.jobs) == (True, False, ())
    assert fans.held_by.startswith("it is reserved for maintenance (fans) until ")
    assert away.why_not_ready == "slurmd does not answer"


def test_after_the_first_look_only_jobs_of_nodes_that_we_drained_are_asked_for() -> None:
    program = FakeProgram()
    scheduler = connect(program)
    scheduler.look(VIEWS)
    program.asked.clear()

    assert [job.id for job in node_of(scheduler, "gpu02").jobs] == ["a job that squeue does not show"]
    assert [asked for asked in program.asked if "--nodelist=gpu01" in asked.split()]


def test_a_node_that_slurmctld_has_not_heard_of_counts_as_busy() -> None:
    """Otherwise the driver would be pulled from under a job when slurmctld was restarted."""
    nodes = (ANSWERS / "24.11-nodes.txt").read_text().replace("State=MIXED+DRAIN", "State=UNKNOWN+DRAIN")
    program = FakeProgram(answers={"nodes": nodes, "jobs": "\n"})

    found = node_of(connect(program), "gpu01")

    assert found.why_not_ready == "slurmd has not registered yet"
    assert [job.id for job in found.jobs] == [
        "whatever ran before slurmctld started: its slurmd has not registered yet"
    ]


def test_every_command_means_the_same_behind_a_shell() -> None:
    """Behind ssh, a shell of another machine reads the arguments."""
    program = FakeProgram()
    scheduler = connect(program)

    scheduler.look(VIEWS)
    scheduler.drain("gpu01", "driver-550.163.01")
    scheduler.resume("gpu01")

    assert len(program.asked) == 5
    for asked in program.asked:
        assert shlex.split(asked) == asked.split()
        assert not set(asked) & set("|&;<>()$`*?[]#~!{}\n")


def test_the_declared_command_runs_them() -> None:
    program = FakeProgram()

    assert isinstance(connect(program, "ssh", "slurm1").look(VIEWS)["gpu01"], NodeProblem), "it knows no node"
    assert program.asked == ["ssh slurm1 scontrol show node"]


def test_an_argument_that_a_shell_would_act_on_is_refused() -> None:
    scheduler = connect(FakeProgram())
    scheduler.look(VIEWS)

    with pytest.raises(SchedulerError, match="characters that a shell acts on"):
        scheduler.drain("gpu01", "it is; reboot")


@pytest.mark.parametrize(
    ("ran", "kind", "words"),
    [
        pytest.param(
            Ran(code=1, errors="slurm_load_node error: Unable to contact slurm controller (connect failure)\n"),
            UnreachableError,
            "scontrol of Slurm: exit code 1: slurm_load_node error: Unable to contact slurm controller",
            id="slurmctld away",
        ),
        pytest.param(
            Ran(code=-1, problem="no answer within 30 s"), UnreachableError, "no answer within 30 s", id="hangs"
        ),
        pytest.param(Ran(code=255, errors="Connection closed"), UnreachableError, "Connection closed", id="ssh"),
        pytest.param(
            Ran(code=1, errors="slurm_update error: Access/permission denied\n"),
            ForbiddenError,
            "Access/permission denied",
            id="no operator",
        ),
        pytest.param(
            Ran(code=-1, problem="it cannot be started: No such file or directory"),
            SchedulerError,
            "it cannot be started: No such file or directory",
            id="not installed",
        ),
        pytest.param(Ran(code=1, errors="fatal: slurm.conf"), SchedulerError, "fatal: slurm.conf", id="another"),
    ],
)
def test_what_a_refusal_means(ran: Ran, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        connect(FakeProgram(refusals={"scontrol": ran})).look(VIEWS)
    assert type(caught.value) is kind
    assert words in str(caught.value)


def test_a_resume_that_slurm_refuses_since_the_node_takes_jobs_is_fine() -> None:
    refused = Ran(code=1, errors="slurm_update error: Invalid node state specified\n")
    program = FakeProgram(refusals={"scontrol update": refused})
    scheduler = connect(program)
    scheduler.look(VIEWS)

    scheduler.resume("gpu02")
    with pytest.raises(SchedulerError, match="Invalid node state specified"):
        scheduler.resume("gpu01")


def test_the_declared_maintenance_holds_nobody() -> None:
    assert not node_of(connect(FakeProgram(), reservation="fans"), "gpu03").held_by
