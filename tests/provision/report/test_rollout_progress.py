"""A rollout as people see it while it goes on, and at its end."""

from __future__ import annotations

import io
from math import inf
from typing import TYPE_CHECKING

import pytest

from provision.apply.model import Failure, NodeFinished, NodeResult, NodeTask, Note, Status, Upgrade
from provision.apply.runner import TaskStarted
from provision.declaration.spec.model import GpuInterface
from provision.report.console import make_console
from provision.report.planned.rollout import render_rollout, rollout_document
from provision.report.progress.live import LiveView
from provision.report.progress.plain import PlainView
from provision.report.results import render_results
from provision.report.status import changes_of
from provision.report.terminal import show
from provision.rollout.decision.policy import Policy, WavePolicy
from provision.rollout.decision.prepare import Prepared
from provision.rollout.interface.gates import GateState
from provision.rollout.interface.progress import NodeWaits, PhaseEntered
from provision.rollout.model import ChangeKind, Job, Phase
from tests.provision.rollout.fakes import MINUTE, NEW, OLD, pod, record, state, view

if TYPE_CHECKING:
    from provision.rollout.interface.progress import RolloutProgress

STORY: list[RolloutProgress] = [
    Note("", "cluster test does not answer: trying again"),
    PhaseEntered("n1", Phase.CORDON),
    NodeWaits("n2", "waits for n1: cordon"),
    NodeWaits("n3", "waits for n1: cordon"),
    PhaseEntered("n1", Phase.DRAIN),
    NodeWaits("n2", "waits for n1: drain"),
    NodeWaits("n1", "pod shop/web-1 (budget web) still on the node", is_out=True),
    PhaseEntered("n1", Phase.SWAP),
    NodeTask(TaskStarted("n1", "install the packages", "grapnel.node.driver"), gathering=False),
]
FAILS: list[RolloutProgress] = [
    PhaseEntered("n1", Phase.FAILED, "verify: 3 of 4 GPUs answer"),
    NodeWaits("n2", "stopped: n1 failed in verify"),
    NodeFinished(NodeResult("n1", Status.FAILED, failure=Failure(Status.FAILED, "3 of 4 GPUs answer"))),
    NodeFinished(NodeResult("n2", Status.WAITING, failure=Failure(Status.WAITING, "stopped: n1 failed in verify"))),
]


class Clock:
    """Two seconds pass between two looks."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 2
        return self.now


LOG = """\
   2.0s     cluster test does not answer: trying again
   4.0s n1  cordon: takes no new work
   6.0s n2  waits for n1: cordon
   8.0s n3  waits for n1: cordon
  10.0s n1  drain: pods with a GPU leave
  12.0s n1  waits: pod shop/web-1 (budget web) still on the node
  14.0s n1  swap: the driver is exchanged
  16.0s n1  failed, stays out of service: verify: 3 of 4 GPUs answer
  18.0s n2  stopped: n1 failed in verify
  20.0s n2  waiting: stopped: n1 failed in verify
"""


def test_a_log_has_each_phase_and_each_new_reason_once() -> None:
    stream = io.StringIO()
    view = PlainView(make_console(stream, width=80), ["n1", "n2", "n3"], Clock())
    for progress in STORY + FAILS:
        view(progress)
    assert stream.getvalue() == LOG


def test_a_log_does_not_count_down_how_much_of_its_time_a_job_has_left() -> None:
    """It had a line for every second of every job of Slurm."""
    stream = io.StringIO()
    view = PlainView(make_console(stream, width=80), ["n1"], Clock())
    for left in ("2-00:00:01", "2-00:00:00", "1-23:59:59"):
        view(NodeWaits("n1", f"waits for job 7 of ada ({left} left), job 8 ({left} left) to end", is_out=True))
    view(NodeWaits("n1", "waits for job 8 (1-23:59:58 left) to end", is_out=True))
    assert [line.split("  ", 2)[-1].strip() for line in stream.getvalue().splitlines()] == [
        "waits for job 7 of ada (2-00:00:01 left), job 8 (2-00:00:01 left) to end",
        "waits for job 8 (1-23:59:58 left) to end",
    ]


def test_a_node_that_is_skipped_is_told_with_what_ends_that() -> None:
    skipped = NodeResult("n2", Status.SKIPPED, note="no upgrade begins on it until `grapnel skip --undo n2`")
    changed = NodeResult("n1", Status.CONVERGED, 1, 2, upgrade=Upgrade("535.261.03", "535.309.01", 3.0))
    stream = io.StringIO()
    show(make_console(stream, width=100), render_results([changed, skipped], 5.0))
    lines = stream.getvalue().splitlines()
    assert "n2: no upgrade begins on it until `grapnel skip --undo n2`" in lines
    assert lines[-1] == "2 nodes: 1 converged, 1 skipped in 5s"


def test_after_an_interruption_there_is_nothing_to_fix() -> None:
    """It said "fix what is reported above" of nodes of which nothing had been reported."""
    left = Failure(Status.CANCELED, "in swap: `grapnel apply` continues from there")
    broken = Failure(Status.FAILED, "3 of 4 GPUs answer")
    way = Upgrade(OLD, NEW, 65, is_out=True)
    results = [
        NodeResult("n1", Status.CANCELED, failure=left, upgrade=way),
        NodeResult("n2", Status.FAILED, failure=broken, upgrade=way),
    ]
    stream = io.StringIO()
    show(make_console(stream, width=100), render_results(results, 5.0))
    assert stream.getvalue().splitlines()[-6:-1] == [
        "",
        "n2 stays out of service: fix what is reported above, then run `grapnel apply` again: it begins there",
        "",
        "n1 stays out of service: run `grapnel apply` again: it goes on there",
        "",
    ]


def test_a_narrow_terminal_has_the_names_of_the_nodes() -> None:
    """Below 65 columns the results had no names."""
    results = [NodeResult(name, Status.CONVERGED, 1, 2, upgrade=Upgrade(OLD, NEW, 9)) for name in ("gpu01", "gpu02")]
    for width in (44, 60):
        stream = io.StringIO()
        show(make_console(stream, width=width), render_results(results, 22.0))
        lines = stream.getvalue().splitlines()
        assert [line.split()[:2] for line in lines[:-1] if "converged " in line] == [
            ["gpu01", "converged"],
            ["gpu02", "converged"],
        ]
        assert all(len(line) <= width for line in lines)


def test_a_node_that_is_asked_who_holds_its_gpus_says_so() -> None:
    """It said that it was gathering facts again."""
    live = LiveView(make_console(io.StringIO(), width=80), ["n1"], Clock())
    live(PhaseEntered("n1", Phase.RELEASE))
    live(NodeTask(TaskStarted("n1", "Release", ""), gathering=True))
    (line,) = (line for line in picture(live) if "n1" in line)
    assert "n1 release  asking who holds a GPU" in line


def picture(view: LiveView) -> list[str]:
    stream = io.StringIO()
    make_console(stream, width=80).print(view.render())
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


def test_a_terminal_shows_the_phase_and_who_waits_for_what() -> None:
    scrolled = io.StringIO()
    view = LiveView(make_console(scrolled, width=80), ["n1", "n2", "n3"], Clock())
    for progress in STORY[:7]:
        view(progress)
    first, second, third, footer = picture(view)
    assert "n1 drain  waits: pod shop/web-1 (budget web) still on the node" in first
    assert first.endswith("2s, out for 8s")
    assert [" ".join(line.split()) for line in (second, third)] == ["n2 waits for n1: drain", "n3 waits for n1: cordon"]
    assert footer.startswith("0 of 3 done, 1 running, 2 waiting")
    for progress in STORY[7:]:
        view(progress)
    assert "n1 swap  driver: install the packages" in picture(view)[0]
    for progress in FAILS:
        view(progress)
    assert scrolled.getvalue().splitlines() == [
        "· cluster test does not answer: trying again",
        "✗ n1  failed, stays out of service: verify: 3 of 4 GPUs answer  18s",
        "✗ n2  waiting: stopped: n1 failed in verify",
    ]


def test_a_large_fleet_that_waits_does_not_fill_the_terminal() -> None:
    names = [f"n{number}" for number in range(100)]
    view = LiveView(make_console(io.StringIO(), width=80), names, Clock())
    for name in names:
        view(NodeWaits(name, "waits for n0: swap"))
    assert len(picture(view)) == 8
    assert "and 94 more waiting" in picture(view)[-2]


RESULTS = """\
node    result     changes  driver                   out of service
n1      converged       11  535.261.03 → 535.309.01             42s
n2      failed           3  535.261.03 → 535.309.01    1m05s so far
n3, n4  waiting
n5      unchanged

n2: check the driver: 3 of 4 GPUs answer
n3, n4: stopped: n2 failed in verify

n2: output of 'check the driver'
  nvidia-smi

n2 stays out of service: fix what is reported above, then run `grapnel apply`
again: it begins there

5 nodes: 1 unchanged, 1 converged, 2 waiting, 1 failed in 2m00s"""


def test_results_tell_the_way_and_the_time_out_of_service() -> None:
    stopped = Failure(Status.WAITING, "stopped: n2 failed in verify")
    results = [
        NodeResult("n1", Status.CONVERGED, 1, 11, None, Upgrade(OLD, NEW, 42)),
        NodeResult(
            "n2",
            Status.FAILED,
            1,
            3,
            Failure(Status.FAILED, "3 of 4 GPUs answer", "check the driver", ("nvidia-smi",)),
            Upgrade(OLD, NEW, 65, is_out=True),
        ),
        *(NodeResult(name, Status.WAITING, failure=stopped) for name in ("n3", "n4")),
        NodeResult("n5", Status.UNCHANGED),
    ]
    stream = io.StringIO()
    show(make_console(stream, width=80), render_results(results, 120))
    assert "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) == RESULTS


PAPER, LEFT = pod("paper", only_waited="kept"), pod("agent", stays="it is labelled")


@pytest.mark.parametrize(
    ("node", "words"),
    [
        pytest.param(state("n1"), "nothing has to leave it", id="idle"),
        pytest.param(state("n1", view("n1", gpu_pods=(pod("web-1"),))), "evicts shop/web-1", id="busy"),
        pytest.param(
            state("n1", view("n1", gpu_pods=(pod("web-1", is_replaced_first=True),))),
            "evicts shop/web-1 (replaced first)",
            id="replaced first",
        ),
        pytest.param(
            state("n1", view("n1", gpu_pods=(pod("a", is_mirror_or_daemon=True),))),
            "nothing has to leave it",
            id="a DaemonSet's pod stays",
        ),
        pytest.param(
            state("n1", view("n1", gpu_pods=(pod("web-1"),)), blocked={"uid-web-1": "would wait for budget web"}),
            "evicts shop/web-1; shop/web-1: would wait for budget web",
            id="a budget is in the way",
        ),
        pytest.param(
            state("n1", view("n1", gpu_pods=(pod("a", is_by_claims=True),))),
            "evicts shop/a; where the cluster has taints of devices, one ends shop/a, whatever disruption budgets say",
            id="a taint ends pods with claims",
        ),
        pytest.param(
            state("n1", view("n1", gpu_pods=(pod("a", tolerates_s=inf),))),
            "evicts shop/a; shop/a tolerates the taint of an upgrade for ever, and is evicted within its "
            "disruption budgets",
            id="a pod that tolerates the taint for ever",
        ),
        pytest.param(
            state("n1", view("n1", gpu_pods=(pod("a", is_by_claims=True, tolerates_s=7200.0),))),
            "evicts shop/a; where the cluster has taints of devices, one ends shop/a, whatever disruption budgets say; "
            "shop/a tolerates the taint for 2h00m, and drainTimeout is 5m00s: unless it ends before, this node fails",
            id="a pod that tolerates the taint for longer than anybody waits",
        ),
        pytest.param(
            state("n1", view("n1", gpu_pods=(PAPER, pod("web-1")), jobs=(PAPER, pod("train")))),
            "waits for shop/paper (kept), shop/train; evicts shop/web-1",
            id="what is waited for",
        ),
        pytest.param(
            state("n1", view("n1", gpu_pods=(LEFT,))), "leaves shop/agent (it is labelled)", id="what is left"
        ),
        pytest.param(
            state("n1", view("n1", work=(Job(id="job 7", user="ada"),))), "waits for job 7 of ada", id="jobs of Slurm"
        ),
        pytest.param(state("n1", view("n1", record(Phase.SWAP))), "continues from swap; ", id="unfinished"),
        pytest.param(
            state("n1", view("n1", record(Phase.FAILED, failed_in=Phase.VERIFY))),
            "failed in verify, is retried; ",
            id="failed",
        ),
        pytest.param(state("n1", view("n1", is_cordoned=True)), "is cordoned, and stays so; ", id="cordoned"),
        pytest.param(state("n1", view("n1", is_ready=False)), "is not ready; ", id="not ready"),
    ],
)
def test_each_node_of_a_rollout_is_told_with_what_it_costs(node: object, words: str) -> None:
    prepared = Prepared(states=(node,), rollout=("n1",), policy=Policy(soak=5 * MINUTE))  # type: ignore[arg-type]
    stream = io.StringIO()
    show(make_console(stream, width=300), render_rollout(prepared, "cluster test"))
    head, line = [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]
    assert head == "rollout (cluster test): 1 at a time, 5 minutes apart, at most 1 of 1 node out"
    assert line.startswith(f" 1.  n1  {OLD} → {NEW}  {words}".rstrip())


@pytest.mark.parametrize(("former", "is_withheld"), [(GpuInterface.DRA, True), (GpuInterface.DEVICE_PLUGIN, False)])
def test_no_gpu_is_said_to_be_withheld_on_a_node_that_never_left_its_interface(
    former: GpuInterface, *, is_withheld: bool
) -> None:
    """Its change was cut short before anything was written, and the declaration is what it was before."""
    kept = GpuInterface.DEVICE_PLUGIN
    has_pod = view("n1", record(Phase.SWAP, kind=ChangeKind.INTERFACE), gpu_pods=(pod("web-1"),))
    node = state("n1", has_pod, kind=ChangeKind.INTERFACE, interface=kept, former_interface=former)
    prepared = Prepared(states=(node,), rollout=("n1",))
    stream = io.StringIO()
    show(make_console(stream, width=200), render_rollout(prepared, "cluster test"))
    assert ("withheld" in stream.getvalue(), "dra" in stream.getvalue()) == (is_withheld, is_withheld)
    nodes = rollout_document(prepared, "cluster test")["nodes"]
    assert isinstance(nodes, list)
    assert bool(nodes[0]["withholds"]) is is_withheld


def test_waves_are_shown_with_their_nodes_and_what_comes_after_them() -> None:
    nodes = state("n1", wave=0), state("n2", wave=2), state("n3", wave=2)
    waves = (
        WavePolicy(title="wave 1 of 3 (canary)", soak=60 * MINUTE, is_held=True),
        WavePolicy(title="wave 2 of 3"),
        WavePolicy(title="wave 3 of 3"),
    )
    prepared = Prepared(states=nodes, rollout=("n1", "n2", "n3"), policy=Policy(max_failures=2, waves=waves))
    stream = io.StringIO()
    show(make_console(stream, width=120), render_rollout(prepared, "cluster test"))
    head, *lines = [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]
    assert head == "rollout (cluster test): 1 at a time, at most 1 of 3 nodes out, stops after 3 failures"
    assert lines[:3] == [
        " wave 1 of 3 (canary): n1; soaks 60 minutes; then holds the others",
        " wave 2 of 3: nothing to do",
        " wave 3 of 3: n2, n3",
    ]
    document = rollout_document(prepared, "cluster test")
    assert document["waves"][0] == {"title": "wave 1 of 3 (canary)", "soakSeconds": 3600, "holds": True}  # type: ignore[index]
    assert [node["wave"] for node in document["nodes"]] == [1, 3, 3]  # type: ignore[attr-defined]


def test_a_plan_says_why_nodes_would_not_begin() -> None:
    states = (
        state("n1", view("n1", is_skipped=True), zone="east"),
        state("n2", view("n2", held_by="kured is rebooting it: waits until it has", remarks=("its pool is paused",))),
    )
    gates = (
        GateState(name="alerts", is_open=False, reason="its query returns GpuLost: waits until it returns nothing"),
        GateState(name="jobs", is_open=True),
    )
    closed = "waits for its window, which opens 2026-11-28 22:00 Europe/Berlin"
    prepared = Prepared(states=states, rollout=("n1", "n2"), policy=Policy(), closed=closed, gates=gates)
    stream = io.StringIO()
    show(make_console(stream, width=160), render_rollout(prepared, "cluster test"))
    _blank, _head, *lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert lines[:3] == [
        f" no node begins now: {closed}",
        " gate alerts is closed: its query returns GpuLost: waits until it returns nothing",
        " gate jobs is open",
    ]
    assert "does not begin: is skipped: `grapnel skip --undo n1` ends that; " in lines[3]
    assert "does not begin: kured is rebooting it: waits until it has; its pool is paused; " in lines[4]
    document = rollout_document(prepared, "cluster test")
    assert document["closed"] == closed
    assert [gate["open"] for gate in document["gates"]] == [False, True]  # type: ignore[attr-defined]
    assert [node["zone"] for node in document["nodes"]] == ["east", None]  # type: ignore[attr-defined]
    assert [node["remarks"] for node in document["nodes"]] == [[], ["its pool is paused"]]  # type: ignore[attr-defined]


def test_a_record_says_from_what_to_what_its_change_leads() -> None:
    """A node that changed its interface was told as upgraded from its driver to the same one."""
    kept = {"target": NEW, "origin": NEW, "upgraded_from": OLD}
    by_claims = {"kind": ChangeKind.INTERFACE, "interface": GpuInterface.BOTH}
    interface, upgrade = ("interface", "devicePlugin → both"), ("upgrade", f"{OLD} → {NEW}")
    assert list(changes_of(record(Phase.DONE))) == [upgrade]
    assert list(changes_of(record(Phase.DONE, **kept, **by_claims))) == [interface, upgrade]
    assert list(changes_of(record(Phase.DONE, **kept | {"upgraded_from": ""}, **by_claims))) == [interface]
    assert list(changes_of(record(Phase.DONE, **kept, kind=ChangeKind.REBOOT))) == [upgrade]
    assert not list(changes_of(record(Phase.DONE, **kept | {"upgraded_from": ""}, kind=ChangeKind.REBOOT)))
