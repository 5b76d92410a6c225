"""The planner in a process of its own: the same plans, and limits that cost one node alone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.apply.declarations import Declarations
from provision.apply.errors import CanceledError, PlanningError
from provision.apply.planner_process.bounded import BoundedPlanner
from provision.apply.planner_process.limits import DEFAULT, Limits
from provision.declaration.fleet.facts.node import AvailablePackage, parse_facts
from provision.planning.planner.plan import plan_node
from tests.provision.samples import PAYLOAD, as_json, configured, make_facts, make_stack, replace

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import NodePlan

REPOSITORY = Path(__file__).parents[4]
STACK = make_stack()
VERSION, SOURCE = "550.163.01-2", "nvidia-graphics-drivers"


def planner(limits: Limits = DEFAULT) -> BoundedPlanner:
    return BoundedPlanner(Declarations({"n1": STACK, "n2": STACK}), PAYLOAD, limits)


def plan(made: BoundedPlanner, node: str, facts: NodeFacts) -> NodePlan:
    return made(node, facts, threading.Event())


def laborious() -> NodeFacts:
    """Return facts within all limits that are planned for minutes: many revisions, of which none is complete."""
    roots = [f"550.163.01-{number}" for number in range(512)]
    names = [f"p{number}" for number in range(1000)]
    needs = AvailablePackage(version=VERSION, source="nvidia-open-gpu-kernel-modules", depends=(*names[:300], "last"))
    of_root = tuple(AvailablePackage(version=each, source=SOURCE, depends=("p0",)) for each in roots)
    return replace(
        make_facts(),
        available={
            **dict.fromkeys(["libcuda1", "libnvidia-ml1", "nvidia-smi"], of_root),
            **dict.fromkeys(names, (needs,)),
            "last": (AvailablePackage(version="1-1", source=SOURCE),),
        },
    )


@pytest.mark.slow
def test_what_takes_long_is_within_the_limits_of_facts() -> None:
    assert parse_facts(as_json(laborious())) == laborious()


@pytest.mark.slow
@pytest.mark.parametrize("facts", [make_facts(), configured()], ids=["bare", "configured"])
def test_a_plan_is_the_planners_own(facts: NodeFacts) -> None:
    assert plan(planner(), "n1", facts) == plan_node(facts, STACK, PAYLOAD, name="n1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "message"),
    [
        pytest.param(Limits(cpu_s=1), "planning n1 took more than 1 s of CPU: ", id="processor"),
        pytest.param(Limits(wall_s=0.3), "planning n1 took more than 0.3 s: ", id="clock"),
    ],
)
def test_a_node_that_costs_too_much_fails_alone(limits: Limits, message: str) -> None:
    made = planner(limits)
    with pytest.raises(PlanningError, match=message) as raised:
        plan(made, "n1", laborious())
    assert raised.value.message.endswith("are its files or package lists unusually large?")
    assert not made.worker.is_alive
    if limits.cpu_s == 1:  # the other limits may be too small for any plan
        assert plan(made, "n2", configured()).is_empty


@pytest.mark.slow
def test_a_plan_that_is_too_large_is_not_read() -> None:
    made = planner(Limits(answer_bytes=1000))
    with pytest.raises(PlanningError, match="planning n1 returned a plan of more than"):
        plan(made, "n1", make_facts())
    assert plan(made, "n2", configured()).is_empty


class Impatient(threading.Event):
    """An event that is set after it was checked a few times."""

    looks = 0

    def is_set(self) -> bool:
        self.looks += 1
        return self.looks > 3


@pytest.mark.slow
def test_an_interrupt_ends_a_plan_that_takes_long() -> None:
    made = planner()
    with pytest.raises(CanceledError):
        made("n1", laborious(), Impatient())
    assert not made.worker.is_alive


@pytest.mark.slow
def test_an_interrupt_ends_the_wait_for_another_nodes_plan() -> None:
    made, began, gives_up = planner(), threading.Event(), threading.Event()

    class Busy(threading.Event):
        def is_set(self) -> bool:
            began.set()
            return gives_up.is_set()

    ended: list[Exception] = []

    def plan_for_long() -> None:
        try:
            made("n1", laborious(), Busy())
        except CanceledError as error:
            ended.append(error)

    thread = threading.Thread(target=plan_for_long)
    thread.start()
    assert began.wait(60)
    with pytest.raises(CanceledError):
        made("n2", configured(), Impatient())
    assert thread.is_alive()
    gives_up.set()
    thread.join(60)
    assert len(ended) == 1


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced() -> None:
    made = planner()
    assert plan(made, "n1", configured()).is_empty
    former = made.worker.pid
    os.kill(former, signal.SIGKILL)
    wait_for_end(former)
    assert plan(made, "n1", configured()).is_empty
    assert made.worker.pid != former


class Killer(threading.Event):
    """Kills the worker while it plans."""

    def __init__(self, made: BoundedPlanner) -> None:
        super().__init__()
        self._made = made

    def is_set(self) -> bool:
        os.kill(self._made.worker.pid, signal.SIGKILL)
        return False


@pytest.mark.slow
def test_a_worker_that_ends_while_it_plans_fails_that_node_alone() -> None:
    made = planner()
    with pytest.raises(PlanningError, match="planning n1: the planner's process ended by signal 9"):
        made("n1", laborious(), Killer(made))
    assert plan(made, "n2", configured()).is_empty


def wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 60)[0], f"process {pid} goes on"
    finally:
        os.close(descriptor)


@pytest.mark.slow
def test_no_worker_outlives_a_controller_that_is_killed() -> None:
    script = (
        "from tests.provision.apply.planning.test_bounded import planner\n"
        "import sys\n"
        "made = planner()\n"
        "print(made.worker.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    argv = [sys.executable, "-P", "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as controller:
        assert controller.stdout is not None
        worker = int(controller.stdout.readline())
        controller.kill()
    wait_for_end(worker)
