"""What uses the GPUs of a node leaves it before its driver is changed, each in the way that is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import make_room
from tests.e2e.fleet import declare, look, other_version
from tests.e2e.manifests import STAY, TEST, container, daemon_set, deployment, disruption_budget, pod
from tests.e2e.replicas import watched
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.e2e.operator import Operator
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

END_S = 240.0
TAINT = "grapnel.dev/upgrade"
ROLLOUT = """\
maxUnavailable: 3
maxParallel: 3
waitFor: {{podSelector: "app=train"}}
drain: {{onlyWait: [{research}], daemonSets: evict, replaceFirst: {{podSelector: "app=web"}}}}
"""
# A GPU that nobody gave it: a privileged container has the devices of its node.
TAKE = "exec 3</dev/nvidia0 && echo looked\ntrap 'exit 0' TERM\nwhile :; do sleep 3600 & wait; done\n"
WORKS = container(image=TEST, command=["gpu-test", "hold"], gpus=1)


@pytest.fixture
def research(stage: Stage) -> Iterator[Room]:
    """A namespace whose pods may only be waited for."""
    yield from make_room(stage, "research")


def test_everything_that_uses_a_gpu_leaves_in_its_own_way(
    room: Room, research: Room, stage: Stage, lab_nodes: tuple[LabNode, ...], operator: Operator
) -> None:
    node, *_others = lab_nodes
    version = other_version(stage, lab_nodes)
    room.start(
        pod("train", container(script=STAY), node=node.name, runtime_class=""),
        daemon_set("agent", WORKS, node=node.name),
        deployment("web", 1, WORKS, node=""),
        disruption_budget("web", min_available=1),  # no eviction ever: a replacement has to come first
        pod("taker", container(script=TAKE, privileged=True), node=node.name, runtime_class=""),
    )
    research.start(pod("paper", WORKS, node=node.name))
    room.wait_running(["train", "taker"])
    research.wait_running(["paper"])
    room.whole_log("taker")  # it has the GPU
    web = wait_for("the Deployment's pod runs", lambda: running(room, "web"), evidence=room.evidence)
    agent = wait_for("the DaemonSet's pod runs", lambda: running(room, "agent"), evidence=room.evidence)
    declare(stage, lab_nodes, version, ROLLOUT.format(research=research.name))

    with watched(room) as ledger, operator.applying(operator.folder / "output") as apply:
        wait_for("it waits for the jobs", lambda: reached(stage, node, apply), timeout_s=END_S)
        told = wait_for("status names them", lambda: named(operator, node, "paper", "train"))
        assert f"pod {research.name}/paper (namespace {research.name} may only be waited for)" in told
        assert TAINT in taints(stage, node), "it is there before anything is evicted"
        others = [each for each in lab_nodes if each is not node]
        for other in others:  # nothing is to be waited for on these
            wait_for(f"{other.name} is done", lambda other=other: phase_of(stage, other) == "done", timeout_s=END_S)
        assert running(room, "agent") == agent, "nothing is evicted while jobs run"
        assert phase_of(stage, node) == "wait-for-jobs"

        for place, name in ((room, "train"), (research, "paper")):
            place.api.delete_pod(place.name, name)  # the end of its work
        wait_for("apply has ended", lambda: apply.poll() is not None, timeout_s=END_S, evidence=room.evidence)

    output = (operator.folder / "output").read_text()
    assert apply.returncode == 0, output
    assert (look(stage, node).module, look(stage, node).phase, look(stage, node).is_cordoned) == (
        version,
        "done",
        False,
    )
    assert running(room, "web") not in ("", web), "its node has been drained"
    assert ledger.least["web"] == 1, "it was never without a ready pod"
    assert "taker" not in [each.metadata.name for each in room.api.pods(room.name)], output
    assert TAINT not in taints(stage, node)
    wait_for("the DaemonSet is back", lambda: running(room, "agent") not in ("", agent), evidence=room.evidence)


def reached(stage: Stage, node: LabNode, apply: subprocess.Popen[str]) -> bool:
    """Tell whether a node waits for its jobs; an apply that has ended instead is an error at once."""
    assert apply.poll() is None, f"apply has ended with {apply.returncode}"
    return phase_of(stage, node) == "wait-for-jobs"


def phase_of(stage: Stage, node: LabNode) -> str:
    """Return how far a node's upgrade is, without a look at what is exchanged meanwhile."""
    return str((stage.api.node(node.name).metadata.labels or {}).get(TAINT, ""))


def running(room: Room, app: str) -> str:
    """Return the UID of an app's pod that runs, "" while none does."""
    found = [
        each.metadata.uid
        for each in room.api.pods(room.name)
        if each.metadata.labels.get("app") == app
        and each.status.phase == "Running"
        and each.metadata.deletion_timestamp is None
    ]
    return found[0] if found else ""


def taints(stage: Stage, node: LabNode) -> list[str]:
    return [each.key for each in stage.api.node(node.name).spec.taints or ()]


def named(operator: Operator, node: LabNode, *words: str) -> str:
    """Return what `grapnel status` says of a node, once it has these words."""
    told = operator.status(node.name).stdout
    flat = " ".join(told.split())
    return flat if all(word in flat for word in words) else ""
