"""How a fleet stands, as metrics that promtool accepts; nothing is said that is not known."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from provision.cluster.kubernetes.nodes.maintenances import NOT_REQUESTED
from provision.cluster.kubernetes.nodes.others import MARKS, why_held
from provision.declaration.spec.model import Blackout, Rollout, Window
from provision.rollout.decision.calendar import calendar_of
from provision.rollout.interface.gates import GateState
from provision.rollout.interface.pause import Pause
from provision.rollout.interface.standing import Members
from provision.rollout.model import Phase
from provision.rollout.status import situations
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.metrics import CLASSES, OTHER, reason_class, render_metrics
from tests.plugin.metrics.promql import WITH_PROMTOOL, promtool_says
from tests.provision.cluster.test_others import ALL, marked
from tests.provision.rollout.fakes import record, state, view
from tests.provision.rollout.status.test_derive import ADA, NOW, status
from tests.provision.status_page.fleets import fleet

HOUR = timedelta(hours=1)
NIGHT = NOW.replace(day=5, hour=23, minute=30)
BLACK = NOW.replace(month=12, day=26)
WINDOW = Window(start="22:00", end="04:00", time_zone="Etc/UTC")
CHRISTMAS = Blackout(first="2026-12-24", last="2027-01-02", time_zone="Etc/UTC", reason="year-end close")
CALENDAR = calendar_of(Rollout(windows=(WINDOW,), blackouts=(CHRISTMAS,)))
assert CALENDAR is not None
GATE = GateState(name="no alerts", is_open=False, reason="GpuXid fires on n4")
SMALL = fleet(60, 4, done=0.5, flying=7, failed=2)


def values(page: bytes) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in page.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_the_fleet_is_counted() -> None:
    found = values(render_metrics(fleet_status(SMALL)))

    assert found['grapnel_rollout_nodes{state="done"}'] == 28
    assert found['grapnel_rollout_nodes{state="failed-in-verify"}'] == 2
    assert found['grapnel_rollout_nodes{state="unclear"}'] == 0, "a state without nodes is there, so that alerts end"
    assert found['grapnel_rollout_waiting_nodes{reason="wave"}'] == 21
    assert found["grapnel_rollout_nodes_needing_somebody"] == 3
    assert found["grapnel_rollout_engine_at_work"] == 1
    assert found['grapnel_rollout_phase_seconds{phase="swap"}'] == 48.5
    assert found['grapnel_rollout_wave_nodes{wave="wave 1 of 4 (canary)",state="done"}'] == 28
    assert found["grapnel_rollout_stopped"] == 0
    assert sum(value for name, value in found.items() if name.startswith("grapnel_rollout_nodes{")) == 60


def test_every_state_is_there() -> None:
    page = render_metrics(status(view("n1"))).decode()

    assert re.findall(r'nodes\{state="([^"]+)"\}', page) == [each.key for each in situations.SITUATIONS]


def test_what_is_not_known_is_not_said() -> None:
    page = render_metrics(status(view("n1"), is_lease_known=False)).decode()

    for name in ("stopped", "paused", "left_seconds", "phase_seconds", "last_progress", "wave_nodes", "published"):
        assert f"grapnel_rollout_{name}" not in page


SAMPLE = re.compile(r"""grapnel_rollout_\w+(\{\w+="([^"\\\n]|\\[\\"n])*"(,\w+="([^"\\\n]|\\[\\"n])*")*\})? \S+""")
TITLES = (
    'w"} 1',
    "w\\",
    'w\\" 5',
    "w\ngrapnel_rollout_stopped 0",
    "w\r\n# TYPE x counter",
    "w\u2028\x85\x0b\x00\x1b[2J",
    "w\u202e<script>",
    "w{}=,",
    "__name__",
    "",
)


def test_titles_of_any_kind_stay_in_their_label() -> None:
    waves = tuple(Members(title, (name,)) for title, name in zip(TITLES, SMALL.nodes, strict=False))
    assert SMALL.standing is not None
    seen = replace(SMALL, standing=replace(SMALL.standing, waves=waves))

    page = render_metrics(fleet_status(seen)).decode()

    lines = [line for line in page.split("\n")[:-1] if not line.startswith("# ")]
    assert {line for line in lines if not SAMPLE.fullmatch(line)} == set()
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines), "no series is there twice"
    assert page.count("\ngrapnel_rollout_stopped ") == 1


def test_a_pause_and_a_stop_show() -> None:
    assert SMALL.standing is not None
    seen = replace(SMALL, pause=Pause(by="ada"), standing=replace(SMALL.standing, stop="n1 failed"))
    found = values(render_metrics(fleet_status(seen)))

    assert (found["grapnel_rollout_paused"], found["grapnel_rollout_stopped"]) == (1, 1)


def test_a_node_that_writes_a_time_to_come_moves_nothing() -> None:
    ahead = record(Phase.SWAP, began=NOW.replace(year=2099), since=NOW.replace(year=2099))
    found = values(render_metrics(status(view("n1", ahead), tenant=ADA)))

    assert not [name for name in found if "last_progress" in name or "longest" in name]


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("stopped: n2 failed in verify", "stopped"),
        ("paused by ada since 2026-05-04 12:00:00 UTC; `grapnel resume` ends it", "paused"),
        ("wave 1 of 3 (canary) soaks until 2026-05-04 12:00:00 UTC", "soak"),
        ("waits for wave 1 of 3 (canary): n1: swap and 2 more", "wave"),
        ("pod shop/web-7f9c (the disruption budget web needs 2 healthy pods) still on the node", "pods"),
        ("1 of 3 nodes may be unavailable: n7 is cordoned", "unavailable"),
        ("n3 is not ready: bring its kubelet back first", "not-ready"),
        ("waits for n1: swap", "turn"),
        ("waits for zone b: n3", "turn"),
        ("waits for pod lab/train-0 to end, until 2026-05-04 13:00:00 UTC at the latest", "jobs"),
        ("a GPU is held by train (7, pod lab/notebook, left alone: a DaemonSet's)", "processes"),
        ("cannot be reached: no route to host", "unreachable"),
        ("the kubelet is not ready", "not-ready"),
        ("n1 has not been ready since it was changed", "not-ready"),
        ("its domain rack-7 of 4 nodes begins together: waits for n1: swap", "domain"),
        ("waits for n2 of its domain rack-7: release", "domain"),
        ("pod shop/window-1, pod shop/gate-2 still on the node", "pods"),
        (CALENDAR.why_closed(NOW, HOUR), "window"),
        (f"no pod is evicted now: {CALENDAR.why_closed(NOW, HOUR)}", "window"),
        (CALENDAR.why_closed(NIGHT, 5 * HOUR), "window"),
        (CALENDAR.why_closed(NIGHT, 9 * HOUR), "window"),
        (CALENDAR.why_closed(BLACK, HOUR), "window"),
        (GATE.as_reason, "gate"),
        (f"wave 1 of 3 (canary) soaks again when its gate opens: {GATE.as_reason}", "gate"),
        (state("n1", view("n1", is_skipped=True)).kept_out, "skipped"),
        *((why_held(marked(mark.kind, mark.key), ALL), "hold") for mark in MARKS),
        (NOT_REQUESTED.words, "hold"),
        ("waits for the maintenance operator: NodeMaintenance default/grapnel-n1 is Pending", "hold"),
        ("waits for the former NodeMaintenance default/grapnel-n1 to be gone", "hold"),
        ("something that nobody has said before", OTHER),
    ],
)
def test_reasons_have_classes(reason: str, name: str) -> None:
    assert reason_class(reason) == name
    assert name in {*dict(CLASSES), OTHER}


def test_a_node_that_is_skipped_waits_for_that_whatever_it_says() -> None:
    found = values(render_metrics(status(view("n1", is_skipped=True, is_cordoned=True))))

    assert found['grapnel_rollout_waiting_nodes{reason="skipped"}'] == 1


@WITH_PROMTOOL
@pytest.mark.parametrize(
    "seen", [SMALL, replace(SMALL, standing=None), replace(SMALL, nodes={})], ids=["work", "early", "none"]
)
def test_promtool_finds_nothing(seen: object) -> None:
    hostile = replace(SMALL, place='x"\n\\') if seen is SMALL else seen
    page = render_metrics(fleet_status(hostile))  # type: ignore[arg-type]  # a Seen

    assert promtool_says("check", "metrics", page=page) == (0, "")
