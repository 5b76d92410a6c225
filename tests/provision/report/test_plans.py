"""Plans on 80 columns."""

from __future__ import annotations

import io
import json

import msgspec
import pytest

from provision.apply.model import Assessment, Failure, Status
from provision.planning.node_plan import Action, Disruption, NodePlan, Problem, Role
from provision.report.console import make_console
from provision.report.documents.plans import plans_document
from provision.report.planned.plans import render_plans
from provision.report.runs.durations import WHOLE
from provision.report.terminal import DISRUPTION_STYLES, STATUS_STYLES, show
from tests.provision.apply.fakes import facts_of, item

RESTART = Disruption.RESTART_RUNTIME
DIGEST = "3f" * 32


def shown(
    answers: dict[str, Assessment | Failure],
    width: int = 80,
    refused: dict[str, Failure] | None = None,
    last: dict[str, float] | None = None,
) -> str:
    stream = io.StringIO()
    show(make_console(stream, width=width), render_plans(answers, refused, last or {}))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def assessed(plan: NodePlan) -> Assessment:
    return Assessment(facts_of(plan.node), plan)


def full_plan(node: str) -> NodePlan:
    driver = "declared driver 550.163.01 is not installed"
    handler = "handler nvidia is not configured"
    return NodePlan(
        node=node,
        items=(
            item("/etc/apt/preferences.d/00-grapnel-nvidia", action=Action.WRITE, to=DIGEST, reason="pinned"),
            item("libcuda1", to="550.163.01-2", reason=driver),
            item("nvidia-alternative", action=Action.UPGRADE, from_="535.261.03-1", to="550.163.01-2", reason=driver),
            item("/usr/lib/grapnel/hook", role=Role.RUNTIME, action=Action.DEPLOY, to=DIGEST, reason="no hook"),
            item(
                "/etc/containerd/conf.d/99-nvidia.toml",
                role=Role.RUNTIME,
                action=Action.WRITE,
                to=DIGEST,
                reason=handler,
                disruption=RESTART,
                deferred=True,
            ),
            item(
                "containerd.service",
                role=Role.RUNTIME,
                action=Action.RESTART,
                to=None,
                reason=handler,
                disruption=RESTART,
            ),
        ),
    )


FULL = """\
n1, n2                                                6 changes, restart-runtime
  driver: pinned
    write      /etc/apt/preferences.d/00-grapnel-nvidia
  driver: declared driver 550.163.01 is not installed
    install    libcuda1               550.163.01-2
    upgrade    nvidia-alternative     535.261.03-1 → 550.163.01-2
  runtime: no hook
    deploy     /usr/lib/grapnel/hook  3f3f3f3f3f3f
  runtime: handler nvidia is not configured
    write      /etc/containerd/conf.d/99-nvidia.toml  after installation
    restart    containerd.service                     restart-runtime

n3                                                                   as declared

3 nodes: 2 to change (12 changes), 1 as declared"""


def test_nodes_with_the_same_plan_stand_together() -> None:
    plans = [full_plan("n1"), NodePlan(node="n3"), full_plan("n2")]
    assert shown({plan.node: assessed(plan) for plan in plans}) == FULL


OBSTACLES = """\
n1                                                                     1 problem
  problem: driver 999.1 is in none of the package sources, which have 535.261.03
  and 550.163.01 (version-not-available)
    hint: declare one of these

n2                                                               1 change, drain
  driver: declared
    install    libcuda1  1  drain
  refused: it has to be drained first, but cannot be: n2 is not a node of
  cluster test

n3  unreachable: no route to host
n4  failed in 'gather facts': apt is locked

4 nodes: 1 with problems, 1 refused, 2 without facts"""


def test_each_step_says_once_how_long_it_took_last_time() -> None:
    last = {"driver: Change the driver": 83.0, "runtime: Apply the configuration": 3.4, WHOLE: 171.0}
    told = shown({"n1": assessed(full_plan("n1")), "n2": assessed(full_plan("n2"))}, last=last)
    assert "driver: pinned  1m23s last time\n" in told
    assert told.count("1m23s") == 1, "the other items of the driver are of the same step"
    assert "runtime: handler nvidia is not configured  3s last time\n" in told
    assert "no hook\n" in told, "nothing is known of it"
    assert told.endswith("2 nodes: 2 to change (12 changes); 2m51s a node last time")


def test_what_took_no_time_or_changes_nothing_says_nothing() -> None:
    assert "last time" not in shown({"n1": assessed(full_plan("n1"))}, last={"driver: Change the driver": 0.4})
    assert shown({"n1": assessed(NodePlan(node="n1"))}, last={WHOLE: 171.0}).endswith("1 node: 1 as declared")


def test_what_stands_in_the_way_is_told() -> None:
    message = "driver 999.1 is in none of the package sources, which have 535.261.03 and 550.163.01"
    problem = Problem(code="version-not-available", message=message, hint="declare one of these")
    drain = NodePlan(node="n2", items=(item("libcuda1", disruption=Disruption.DRAIN),))
    answers: dict[str, Assessment | Failure] = {
        "n1": assessed(NodePlan(node="n1", problems=(problem,))),
        "n2": assessed(drain),
        "n3": Failure(Status.UNREACHABLE, "no route to host"),
        "n4": Failure(Status.FAILED, "apt is locked", "gather facts"),
    }
    lost = "it has to be drained first, but cannot be: n2 is not a node of cluster test"
    assert shown(answers, refused={"n2": Failure(Status.REFUSED, lost)}) == OBSTACLES


def test_many_names_are_shortened() -> None:
    text = shown({f"node{number:03}": assessed(NodePlan(node=f"node{number:03}")) for number in range(200)})
    assert "node009 and 190 more" in text
    assert "200 nodes: 200 as declared" in text


@pytest.mark.parametrize("width", [80, 100, 200])
def test_nothing_is_broken_in_two(width: int) -> None:
    text = shown({"n1": assessed(full_plan("n1"))}, width)
    for word in ("libcuda1", "/etc/containerd/conf.d/99-nvidia.toml", "535.261.03-1 → 550.163.01-2"):
        assert word in text


@pytest.mark.parametrize("width", [50, 60, 80])
def test_a_narrow_terminal_folds_what_does_not_fit_and_cuts_no_cost(width: int) -> None:
    """At 80 columns, "drain, after staging" was "drain, a" beside a long version."""
    long = item(
        "nvidia-kernel-common",
        action=Action.UPGRADE,
        from_="535.261.03-1~bpo12+1~deb12u1",
        to="550.163.01-2~deb12u1",
        disruption=Disruption.DRAIN,
        deferred=True,
    )
    items = (*full_plan("n1").items, long)
    text = shown({"n1": assessed(NodePlan(node="n1", items=items))}, width)
    assert "drain, after staging" in text
    assert "restart-runtime" in text
    assert "…" not in text
    assert text.count("~") == "".join(
        (*(each.from_ or "" for each in items), *(each.to or "" for each in items))
    ).count("~")
    assert text.count("/") == "".join(each.target for each in items).count("/")


@pytest.mark.parametrize("width", [70, 80])
def test_a_long_target_is_not_split_for_what_stands_beside_it(width: int) -> None:
    """A path was broken at 32 columns, since versions in another line of the same reason needed the room."""
    path = "/etc/systemd/system/containerd.service.d/grapnel"
    beside = item("nvidia-kernel-common", from_="535.261.03-1~deb12u1", to="550.163.01-2~deb12u1")
    long = item(path, from_="535.261.03-1~deb12u1", to="550.163.01-2~deb12u1", disruption=Disruption.DRAIN)
    lines = shown({"n1": assessed(NodePlan(node="n1", items=(beside, long)))}, width).splitlines()
    (at,) = [number for number, line in enumerate(lines) if path in line]
    assert lines[at + 1].split() == ["535.261.03-1~deb12u1", "→", "550.163.01-2~deb12u1", "drain"]


def test_json_has_the_plans_of_the_contract() -> None:
    answers: dict[str, Assessment | Failure] = {
        "n2": assessed(full_plan("n2")),
        "n1": Failure(Status.UNREACHABLE, "no route to host"),
    }
    text = plans_document(answers)
    document = json.loads(text)
    assert document["schema"] == "grapnel.dev/plans/v1alpha1"
    assert msgspec.json.decode(json.dumps(document["plans"][0]), type=NodePlan) == full_plan("n2")
    assert document["failures"] == [
        {"node": "n1", "status": "unreachable", "task": "", "message": "no route to host", "output": []}
    ]
    assert text == plans_document(answers)


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)], ids=["colour", "NO_COLOR"])
def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch, no_color: str, *, coloured: bool) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = io.StringIO()
    show(make_console(stream, width=80), render_plans({"n1": assessed(full_plan("n1"))}))
    assert ("\x1b[32m" in stream.getvalue() or "36m" in stream.getvalue()) is coloured


def test_every_result_has_a_style() -> None:
    assert set(STATUS_STYLES) == set(Status)
    assert set(DISRUPTION_STYLES) == set(Disruption)
