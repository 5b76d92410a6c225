"""Which nodes `grapnel reboot` takes out of service, and why it leaves the others alone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from provision.apply.model import Failure, NodeResult, Status
from provision.declaration.fleet.facts.driver import DriverRun, DriverState, Kernel, ModuleFile, PendingReboot
from provision.rollout.changes.reboot_plan import (
    RebootPlan,
    RebootRequest,
    another_change,
    plan_reboots,
    why_needed,
    why_not,
)
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import ChangeKind, Phase
from tests.provision.rollout.fakes import MINUTE, NEW, NOON, OLD, record, view
from tests.provision.samples import make_facts, make_module, make_stack, replace

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.rollout.model import NodeView, Record

RUNNING, NEXT = "6.12.107+deb13-amd64", "6.12.117+deb13-amd64"
BEFORE, AFTER = "6c5a2a0e-9b63-4c1c-a6c1-0d8b4f0a9d0e", "11111111-9b63-4c1c-a6c1-0d8b4f0a9d0e"
GONE = Failure(Status.UNREACHABLE, "no route to host")


def facts(boot: str = BEFORE, **changes: object) -> NodeFacts:
    found = make_facts(module=make_module(OLD, OLD), **changes)
    return replace(found, node=replace(found.node, boot_id=boot))


def kernel(release: str, *modules: str, default: bool = False) -> Kernel:
    files = tuple(ModuleFile(version=one) for one in modules)
    return Kernel(release=release, running=release == RUNNING, default=default, modules=files)


def reboot_of(phase: Phase, **more: object) -> Record:
    return record(phase, **{"target": OLD, "origin": OLD, "kind": ChangeKind.REBOOT, "boot": BEFORE, **more})


def plan(found: NodeFacts | Failure, seen: NodeView | NodeProblem | None = None, **asked: object) -> RebootPlan:
    request = RebootRequest(**{"now": NOON, "since": NOON - timedelta(hours=24), **asked})  # type: ignore[arg-type] # by name
    return plan_reboots({"n1": found}, {"n1": make_stack()}, {"n1": seen or view("n1")}, request)


def result(planned: RebootPlan) -> tuple[Status, str]:
    found: NodeResult = planned.settled["n1"]
    return found.status, found.failure.message if found.failure is not None else found.note


def test_a_node_that_is_named_is_rebooted_whether_it_needs_it_or_not() -> None:
    planned = plan(facts())

    (state,) = planned.prepared.states
    assert planned.prepared.rollout == ("n1",)
    assert (state.kind, state.boot, state.target, state.is_disruptive) == (ChangeKind.REBOOT, BEFORE, OLD, True)
    assert not state.may_return


@pytest.mark.parametrize(
    ("found", "needs"),
    [
        pytest.param(facts(), (), id="nothing"),
        pytest.param(
            facts(pending_reboot=PendingReboot(path="/run/reboot-needed")),
            ("/run/reboot-needed is there",),
            id="a file",
        ),
        pytest.param(
            facts(pending_reboot=PendingReboot(path="/run/reboot-required", packages=("libc6", "systemd"))),
            ("libc6, systemd asked for it",),
            id="packages",
        ),
        pytest.param(
            facts(kernels=(kernel(RUNNING), kernel(NEXT, default=True))),
            (f"kernel {RUNNING} runs, and {NEXT} boots next",),
            id="another kernel",
        ),
        pytest.param(facts(kernels=(kernel(RUNNING, default=True), kernel(NEXT))), (), id="an older kernel"),
    ],
)
def test_what_needs_a_reboot(found: NodeFacts, needs: tuple[str, ...]) -> None:
    assert why_needed(found) == needs
    planned = plan(found, only_needed=True)
    assert planned.prepared.rollout == (("n1",) if needs else ())
    if not needs:
        assert result(planned) == (Status.UNCHANGED, "")


REFUSALS = {
    "it cannot be reached": (GONE, None, Status.UNREACHABLE, "no route to host"),
    "it is no Node": (
        facts(),
        NodeProblem(name="n1", message="no node is named n1", hint="--no-cluster"),
        Status.REFUSED,
        "has to be drained first, but cannot be: no node is named n1",
    ),
    "its driver change waits for a reboot": (
        facts(driver=DriverState(run=DriverRun(state="needs-reboot", verb="swap", change="a" * 12, reboot="pinned"))),
        None,
        Status.REFUSED,
        "its driver change waits for a reboot (pinned): `grapnel apply` reboots it",
    ),
    "its driver change was cut short": (
        facts(driver=DriverState(run=DriverRun(state="running", verb="swap", change="a" * 12))),
        None,
        Status.REFUSED,
        "its driver change (swap) has not come to its end: `grapnel apply` goes on",
    ),
    "its driver change has failed": (
        facts(),
        view("n1", record(Phase.FAILED, failed_in=Phase.VERIFY)),
        Status.REFUSED,
        "has failed in verify, so it is out of service already",
    ),
    "the next kernel has no module": (
        facts(kernels=(kernel(RUNNING, OLD), kernel(NEXT, NEW, default=True))),
        None,
        Status.REFUSED,
        f"kernel {NEXT} boots next and has no module of driver {OLD}",
    ),
    "it does not tell its boot": (facts("{{ boot }}".replace(" ", "")), None, Status.REFUSED, "in which boot it is"),
}


@pytest.mark.parametrize(("found", "seen", "status", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_node_is_left_in_service(
    found: NodeFacts | Failure, seen: NodeView | NodeProblem | None, status: Status, words: str
) -> None:
    planned = plan(found, seen)

    assert planned.prepared.rollout == ()
    assert result(planned)[0] is status
    assert words in result(planned)[1]


def test_a_kernel_with_the_module_of_the_loaded_driver_may_boot() -> None:
    assert why_not(facts(kernels=(kernel(RUNNING, OLD), kernel(NEXT, OLD, default=True)))) == ""
    assert why_not(facts(kernels=(kernel(RUNNING), kernel(NEXT, default=True)))) == "", "modules are not to be seen"


@pytest.mark.parametrize(
    ("former", "found", "is_as_declared"),
    [
        pytest.param(reboot_of(Phase.DRAIN), facts(), False, id="not rebooted yet"),
        pytest.param(reboot_of(Phase.SWAP), facts(AFTER), False, id="rebooted: the step restores what a boot forgets"),
        pytest.param(reboot_of(Phase.SWAP), GONE, False, id="just rebooting: it is waited for"),
        pytest.param(reboot_of(Phase.VERIFY), facts(AFTER), True, id="rebooted, to be verified"),
        pytest.param(reboot_of(Phase.RESUME), GONE, True, id="verified, and not to be reached now"),
        pytest.param(reboot_of(Phase.FAILED, failed_in=Phase.VERIFY), facts(AFTER), True, id="verified again"),
    ],
)
def test_a_request_that_was_cut_short_is_continued_with_the_boot_that_it_began_with(
    former: Record, found: NodeFacts | Failure, *, is_as_declared: bool
) -> None:
    planned = plan(found, view("n1", former))

    (state,) = planned.prepared.states
    assert planned.prepared.rollout == ("n1",)
    assert planned.settled == {}
    assert (state.boot, state.is_as_declared, state.is_disruptive) == (BEFORE, is_as_declared, not is_as_declared)


@pytest.mark.parametrize(
    ("since", "asked", "is_done"),
    [
        pytest.param(NOON - MINUTE, {}, True, id="just now"),
        pytest.param(NOON - timedelta(hours=25), {}, False, id="yesterday"),
        pytest.param(NOON - timedelta(hours=25), {"since": NOON - timedelta(hours=30)}, True, id="since before it"),
        pytest.param(NOON - MINUTE, {"since": NOON}, False, id="since after it"),
        pytest.param(NOON + timedelta(days=9), {}, False, id="a date that is still to come: a node may write its own"),
    ],
)
def test_a_reboot_of_ours_counts_for_a_day_or_since_a_moment(
    since: object, asked: dict[str, object], *, is_done: bool
) -> None:
    planned = plan(facts(AFTER), view("n1", reboot_of(Phase.DONE, since=since)), **asked)

    assert (planned.prepared.rollout == ()) == is_done
    if is_done:
        assert "was rebooted at" in result(planned)[1]


def test_a_driver_change_that_is_under_way_comes_to_its_end_first() -> None:
    flying, ours = view("n2", record(Phase.VERIFY)), view("n1", reboot_of(Phase.SWAP))

    assert another_change({"n1": ours, "n2": flying}) == ("n2", Phase.VERIFY)
    assert another_change({"n1": ours, "n3": view("n3", record(Phase.DONE))}) is None
