"""The tours with which `make cluster` ends and which docs/tour.md shows: their commands, as they are printed."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from lab.cluster import Cluster
from lab.cluster.controller import POOL, apply_stack, install, uninstall
from lab.cluster.project import render_settings, write_project, write_stack
from lab.cluster.tour import Tour, heal
from tests.e2e import controller_image
from tests.e2e.conftest import NAME
from tests.e2e.fleet import look, look_at_all
from tests.e2e.replicas import watched
from tests.e2e.room import Room
from tests.e2e.test_chart import MARKS
from tests.e2e.waiting import for_each, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.operator import Operator
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

NEXT_BRANCH = "550.163.01"  # of Debian 13: whichever driver the stage has now, this is another one
PAGE = "http://127.0.0.1:8470/"
WANTED = 2  # of the three pods that serve
COMMAND_TIMEOUT_S = 300
UPGRADE_S = 600


@dataclass(frozen=True)
class Person:
    """Somebody in the folder of the declaration, with the settings that are printed before the tour."""

    settings: str

    def types(self, command: str, status: int = 0) -> str:
        """Run a command to its end, and hold it to a status; return what it has printed."""
        with self.typing(command) as typed:
            printed, _ = typed.communicate(timeout=COMMAND_TIMEOUT_S)
        assert typed.returncode == status, printed
        return printed

    @contextmanager
    def typing(self, command: str) -> Iterator[subprocess.Popen[str]]:
        """Begin a command; whatever it has started ends with the block."""
        typed = subprocess.Popen(
            ["bash", "-c", f"{self.settings}\n{command}"],
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "140"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        with typed:
            try:
                yield typed
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(typed.pid, signal.SIGTERM)


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["one node", "two nodes"])
def tour(request: pytest.FixtureRequest, lab_nodes: tuple[LabNode, ...]) -> Tour:
    """The tour of nodes with Debian 13: one that fails, and before that, where there is time, one that does not."""
    return Tour(NEXT_BRANCH, upgraded=(lab_nodes[0].name,) if request.param else (), failing=lab_nodes[1].name)


@pytest.fixture
def person(
    tour: Tour, lab_nodes: tuple[LabNode, ...], stage: Stage, operator: Operator, tmp_path: Path
) -> Iterator[Person]:
    """A person with the tour's nodes in the inventory; the stage is as before afterwards."""
    cluster = Cluster(NAME)
    write_project(cluster, tmp_path, tour)
    inventory = yaml.safe_load(tmp_path.joinpath("inventory.yaml").read_text())
    group = inventory["gpu_nodes"]
    group["hosts"] = {name: group["hosts"][name] for name in (*tour.upgraded, tour.failing)}
    tmp_path.joinpath("inventory.yaml").unlink()
    tmp_path.joinpath("inventory.yaml").write_text(yaml.safe_dump(inventory))
    beyond = [node.name for node in lab_nodes if node.engine == "crio"]  # a cluster has it only where it is asked for
    for name in beyond:
        cluster.kubectl(["cordon", name])
    yield Person(render_settings(cluster, tmp_path))
    for name in beyond:
        cluster.kubectl(["uncordon", name])
    cluster.kubectl(["delete", "-f", str(tmp_path / "serve.yaml"), "--ignore-not-found", "--wait"])
    heal(cluster.site.node(tour.failing))
    changed = [node for node in lab_nodes if node.name in group["hosts"]]
    operator.converge(*changed)
    for_each(changed, stage.wait_until_settled)


@pytest.fixture
def stack_person(lab_nodes: tuple[LabNode, ...], stage: Stage, operator: Operator, tmp_path: Path) -> Iterator[Person]:
    """A person with a kubeconfig and a GpuStack of both nodes; the stage is as before afterwards."""
    cluster, tour = Cluster(NAME), both(lab_nodes)
    nodes = (*tour.upgraded, tour.failing)
    try:
        install(cluster, controller_image.archive(), nodes)
        apply_stack(cluster, write_stack(cluster, tmp_path, tour))
        yield Person(render_settings(cluster, tmp_path))
    finally:
        heal(cluster.site.node(tour.failing))
        cluster.kubectl(["delete", "deployment,poddisruptionbudget", "serve", "--ignore-not-found", "--wait"])
        uninstall(cluster)
    cluster.kubectl(["delete", "crd", "gpustacks.grapnel.dev", "--ignore-not-found"])
    cluster.kubectl(["label", "nodes", *nodes, f"{POOL}-"])
    cluster.kubectl(["annotate", "nodes", *nodes, *MARKS])
    operator.converge(*lab_nodes[:2])
    for_each(lab_nodes[:2], stage.wait_until_settled)


def both(lab_nodes: tuple[LabNode, ...]) -> Tour:
    """Return the tour of both nodes with Debian 13."""
    former = lab_nodes[0].module_version()
    return Tour(NEXT_BRANCH, former=former, upgraded=(lab_nodes[0].name,), failing=lab_nodes[1].name)


def test_the_commands_of_the_tour_do_what_the_page_says(
    person: Person, tour: Tour, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    nodes = {node.name: node for node in lab_nodes if node.name in (*tour.upgraded, tour.failing)}
    before = look_at_all(stage, list(nodes.values()))
    former = before[tour.failing].module
    work, plan, apply, fail, rollback = tour.commands()

    assert "successfully rolled out" in person.types(work)
    planned = person.types(plan)
    assert [f"{name}  {former} → {NEXT_BRANCH}" in planned for name in nodes] == [True] * len(nodes)

    with watched(Room(stage, "default")) as ledger:
        if tour.upgraded:
            with person.typing(apply) as typed:
                page = wait_for("the live page answers", live_page, evidence=lambda: "")
                printed, _ = typed.communicate(timeout=COMMAND_TIMEOUT_S)
            assert "1 converged" in printed
            assert "<title>" in page
        assert {driver_of(stage, nodes[name]) for name in tour.upgraded} <= {NEXT_BRANCH}
        failed = person.types(fail, status=1)
        assert f"{tour.failing}  returned to {former}, since verify failed: " in failed
        assert driver_of(stage, nodes[tour.failing]) == former
        back = person.types(rollback)
        assert f"{len(nodes)} returned" in back

    assert {name: driver_of(stage, node) for name, node in nodes.items()} == dict.fromkeys(nodes, former)
    assert {name: look(stage, node).boot for name, node in nodes.items()} == {
        name: state.boot for name, state in before.items()
    }
    assert ledger.least["serve"] >= WANTED
    assert len(ledger.seen["serve"]) > WANTED + 1  # pods have left a node, and others took their places


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_commands_of_the_tour_through_the_controller_do_what_the_page_says(
    stack_person: Person, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    person, tour, cluster = stack_person, both(lab_nodes), Cluster(NAME)
    (upgraded, failing) = lab_nodes[:2]
    before = look_at_all(stage, [upgraded, failing])
    former = before[failing.name].module
    work, plan, fail, upgrade, look_at_it, back, declare = tour.controller_commands(cluster.name)

    assert "successfully rolled out" in person.types(work)
    planned = person.types(plan)
    assert f'"{former}" → "{NEXT_BRANCH}"' in planned
    assert {node.name for node in (upgraded, failing) if node.name in planned} == {upgraded.name, failing.name}

    with watched(Room(stage, "default")) as ledger:
        person.types(fail)
        with person.typing(upgrade) as typed:
            page = wait_for("the live page answers", live_page, evidence=lambda: "")
            printed, _ = typed.communicate(timeout=UPGRADE_S)
        assert "<title>" in page
        assert f"gpustack.grapnel.dev/{cluster.name} condition met" in printed, printed
        assert "Changing" in printed
        assert driver_of(stage, upgraded) == NEXT_BRANCH
        assert driver_of(stage, failing) == former
        told = " ".join(person.types(look_at_it, status=1).split())
        assert "Degraded" in told
        assert "CUDA_ERROR_OUT_OF_MEMORY" in told
        assert "nobody is at work" in person.types(back, status=1)  # as what is declared is not there any more
        assert driver_of(stage, upgraded) == former
        person.types(declare)

    after = look_at_all(stage, [upgraded, failing])
    assert {name: (state.module, state.boot) for name, state in after.items()} == {
        name: (former, state.boot) for name, state in before.items()
    }
    assert driver_of(stage, upgraded) == driver_of(stage, failing) == former
    assert ledger.least["serve"] >= WANTED


def driver_of(stage: Stage, node: LabNode) -> str:
    """Return the driver of a node that is in service, module and packages."""
    state = look(stage, node)
    assert not state.is_cordoned
    assert state.module == state.package
    return state.module


def live_page() -> str:
    """Return what the live page answers, and nothing as long as it does not."""
    with suppress(URLError), urlopen(PAGE, timeout=5) as answer:
        return str(answer.read().decode())
    return ""
