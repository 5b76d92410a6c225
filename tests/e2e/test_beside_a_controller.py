"""People beside a controller that is idle: an apply at a terminal, and a node that is returned on request."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e import test_controller, test_controller_upgrade
from tests.e2e.fleet import look
from tests.e2e.test_controller import STACK, controller
from tests.e2e.test_controller_upgrade import END_S, NEXT_BRANCH, declare, is_done, phase_of, status, version_of
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lab.cluster import Cluster
    from tests.e2e.operator import Operator
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]

cluster = test_controller.cluster
nodes = test_controller_upgrade.nodes


def test_a_terminal_works_beside_an_idle_controller_which_returns_a_node_on_request(
    stage: Stage, nodes: tuple[LabNode, LabNode], cluster: Cluster, operator: Operator, tmp_path: Path
) -> None:
    """An idle controller refused both for good, although `grapnel status` advised them."""
    first, second = nodes
    version = version_of(stage, nodes)
    declare(cluster, version)
    with controller(cluster, tmp_path) as run:

        def wait(what: str, condition: Callable[[], bool]) -> None:
            told = lambda: f"{status(cluster)}\n{run.log.read_text()}"  # noqa: E731 - asked again and again
            wait_for(what, lambda: run.is_there() and condition(), timeout_s=END_S, evidence=told)

        wait("it is as declared", lambda: is_done(cluster, STACK))
        second.node.install_module(NEXT_BRANCH)
        operator.declare(NEXT_BRANCH)
        done = operator.apply(second.name)
        assert done.returncode == 0, done.stdout
        assert look(stage, second).module == NEXT_BRANCH

        first.node.install_module(NEXT_BRANCH)
        declare(cluster, NEXT_BRANCH)
        wait("the controller upgrades its own", lambda: is_done(cluster, STACK))
        first.node.install_module(version)  # its disk has the module of the driver before
        said = ask_back(operator, first, tmp_path)
        assert f"returned to the driver before ({version})" in said
        wait("it goes back", lambda: phase_of(stage, first) == "returned")
        state = look(stage, first)
        assert (state.module, state.package, state.is_cordoned) == (version, version, False)
        wait("its stack says so", lambda: status(cluster).get("state") == "Degraded")
        assert "asked for it (`grapnel rollback`)" in status(cluster)["troubles"][0]["message"]


def ask_back(operator: Operator, node: LabNode, folder: Path) -> str:
    """Have somebody without an inventory ask for a node to be returned; return what they are told."""
    done = subprocess.run(
        ["grapnel", "rollback", node.name, "--yes", "--kubeconfig", str(operator.kubeconfig)],
        cwd=folder,
        env=operator.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
