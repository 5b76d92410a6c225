"""`grapnel plan` and `grapnel status` of a cluster with a controller, on a real API server."""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from provision.base.errors import ExitCode
from provision.cli import main
from provision.cli.look.status import open_reader
from provision.cli.parsers.arguments import ARGUMENTS
from provision.cluster.kubernetes.permissions import VIEW_GRANT
from provision.report.status_page.feed import Feed
from tests.provision.cluster.stage import wait_until
from tests.provision.cluster.test_access import operator
from tests.provision.controller.fleet import NEW, OLD, World, driver
from tests.provision.stacks.samples import document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
VIEWED = list(yaml.safe_load_all((Path(__file__).parents[3] / VIEW_GRANT).read_text()))
_NUMBERS = itertools.count(1)


@pytest.fixture
def world(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    stage.kubectl("delete", "nodes", "--all")  # a status is of the whole cluster: others' failures would be in it
    made = World(stage, f"looked-at-{next(_NUMBERS)}")
    yield made
    stage.kubectl("delete", "gpustacks", "--all")
    stage.kubectl("delete", "nodes", "-l", f"pool={made.pool}")


class Shell:
    """Runs grapnel as the administrator of the cluster, and keeps what it printed."""

    def __init__(self, world: World, capsys: pytest.CaptureFixture[str], kubeconfig: Path | None = None) -> None:
        self._world, self._capsys = world, capsys
        self._kubeconfig = kubeconfig or world.stage.control_plane.kubeconfig
        self.said = ""

    def __call__(self, *words: str) -> int:
        code = main([*words, "--kubeconfig", str(self._kubeconfig)])
        out, error = self._capsys.readouterr()
        self.said = " ".join(out.split()) + error
        self.out = out
        return code

    def stack(self, *words: str) -> dict[str, Any]:
        """Return what `plan --json` says of the stack of the world."""
        self("plan", "--json", *words)
        found: dict[str, Any] = next(
            each for each in json.loads(self.out)["stacks"] if each["name"] == self._world.pool
        )
        return found


@pytest.fixture
def shell(world: World, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(world, capsys)


def write(world: World, path: Path, **spec: object) -> str:
    """Write the stack of the pool as a file in the working folder; return its name, which a line of output holds."""
    given = document(world.pool, {"nodeSelector": {"matchLabels": {"pool": world.pool}}, **spec})
    path.write_text(json.dumps(given))
    return path.name


def test_a_plan_says_what_a_changed_file_would_bring_and_changes_nothing(
    world: World, shell: Shell, tmp_path: Path
) -> None:
    nodes = [world.join(driver(OLD)) for _number in range(3)]
    world.declare(driver={"version": OLD})
    with world.controller():
        world.wait_for("AsDeclared")
        wait_until(lambda: all(world.is_marked(name) for name in nodes), "every Node says so")
        assert shell("plan", "--exit-code") == ExitCode.DONE, shell.said
        assert f"{world.pool} 3 nodes as declared 3 nodes" in shell.said
        assert "controller-a is the leading controller" in shell.said
        looked = len(world.machines.runs)
        waves = {"waves": [{"size": 1}, {}], "soakMinutes": 0}
        file = write(world, tmp_path / "stack.yaml", driver={"version": NEW}, rollout=waves)
        assert shell("plan", "-f", file, "--exit-code") == ExitCode.CHANGES, shell.said
        assert f'spec.driver.version: "{OLD}" → "{NEW}"' in shell.said
        assert "due 3 nodes" in shell.said
        assert "its stack declares something else than it was brought to" in shell.said
        assert f"wave 1 of 2 (canary): {nodes[0]}" in shell.said
        found = shell.stack("-f", file)
        assert (found["changes"][0]["key"], found["changes"][0]["machines"]) == ("spec.driver.version", True)
        assert not found["guessed"], "the controller is of the same version"
        assert {each["node"] for each in found["nodes"] if each["comes"] == "due"} == set(nodes)
        assert len(world.machines.runs) == looked, "no node was asked"
        world.stage.kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
        world.wait_for("AsDeclared")
        wait_until(lambda: len(shell.stack()["nodes"]) == 3 and not is_due(shell), "all of it was brought about")
        assert sorted(world.asked("release")) == sorted(nodes), "and what was said to be due is what was done"


def is_due(shell: Shell) -> bool:
    return any(each["comes"] != "as declared" for each in shell.stack()["nodes"])


def test_a_file_that_only_changes_how_nodes_are_changed_makes_none_due(
    world: World, shell: Shell, tmp_path: Path
) -> None:
    name = world.join(driver(OLD))
    world.declare(driver={"version": OLD})
    with world.controller():
        world.wait_for("AsDeclared")
        wait_until(lambda: world.is_marked(name), "the Node says so")
    file = write(world, tmp_path / "stack.yaml", driver={"version": OLD}, rollout={"maxParallel": 3})
    assert shell("plan", "-f", file) == ExitCode.DONE
    assert "none is due for it" in shell.said
    assert "no controller is at work" in shell.said
    assert {each["comes"] for each in shell.stack("-f", file)["nodes"]} == {"as declared"}


def test_a_new_stack_names_its_nodes_and_those_that_another_one_has(world: World, shell: Shell, tmp_path: Path) -> None:
    name = world.join()
    file = write(world, tmp_path / "stack.yaml", driver={"version": NEW})
    assert shell("plan", "-f", file) == ExitCode.DONE
    assert f"{world.pool} is new: {file} gives it 1 node" in shell.said
    assert "no controller has brought it to a declaration yet" in shell.said
    world.declare(f"{world.pool}-other", driver={"version": NEW})
    assert shell("plan", "-f", file) == ExitCode.FAILED
    assert f"{name}: GpuStack {world.pool}-other selects it as well" in shell.said


def test_a_file_that_the_api_server_would_refuse_is_refused_before(world: World, shell: Shell, tmp_path: Path) -> None:
    file = write(world, tmp_path / "stack.yaml", driver={"version": NEW, "branch": "550"})
    assert shell("plan", "-f", file) == ExitCode.FAILED
    assert "spec.driver" in shell.said
    assert shell("plan", "-f", file, "-i", "hosts") == ExitCode.USAGE
    assert "--inventory is about machines of an inventory" in shell.said


def test_status_and_its_page_show_the_stacks(world: World, shell: Shell) -> None:
    bad = world.join(driver(OLD))
    world.machines.nodes[bad].broken = driver(NEW)
    world.declare(driver={"version": NEW}, rollout={"soakMinutes": 0})
    with world.controller():
        world.wait_for("Degraded")
        assert shell("status") == ExitCode.FAILED
        assert f"{world.pool} Degraded 0/1 {NEW}" in shell.said
        assert f"{bad}: " in shell.said
        shell("status", "--json")
        (found,) = [each for each in json.loads(shell.out)["stacks"] if each["name"] == world.pool]
        assert (found["state"], found["nodes"]["failed"], found["outdated"]) == ("Degraded", 1, False)
        assert shell("plan") == ExitCode.FAILED
        assert f"`grapnel retry {bad}`" in shell.said
        feed = Feed(open_reader(_arguments(world))[0])
        feed.start()
        try:
            message = feed.wait("", 30)
            assert message is not None
            (row,) = [each for each in json.loads(message.body)["head"]["stacks"] if each[0] == world.pool]
            assert row[1:5] == ["Degraded", "bad", "0/1", NEW]
            assert row[6][0][0] == bad
        finally:
            feed.close()


def _arguments(world: World) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    ARGUMENTS["status"](parser)
    return parser.parse_args(["--kubeconfig", str(world.stage.control_plane.kubeconfig)])


def test_kubectl_describe_tells_what_has_happened(world: World) -> None:
    bad = world.join(driver(OLD))
    world.machines.nodes[bad].broken = driver(NEW)
    world.declare(driver={"version": NEW}, rollout={"soakMinutes": 0})
    with world.controller():
        world.wait_for("Degraded")
        wait_until(lambda: "NodeFailed" in described(world), "the failure is told", explain=lambda: described(world))
        assert "RolloutBegan" in described(world)
        assert f"{bad}: " in described(world)
    told = described(world).count("NodeFailed")
    with world.controller("controller-b"):
        world.wait_for("Degraded")
        world.machines.nodes[bad].broken = ""
        world.declare(driver={"version": NEW}, rollout={"soakMinutes": 0}, plugin={"metricsAddress": "0.0.0.0:9400"})
        world.wait_for("AsDeclared")
        wait_until(lambda: "AsDeclared  " in events(world), "the end is told", explain=lambda: described(world))
    assert described(world).count("NodeFailed") == told, "what the former leader has told is no news"


def described(world: World) -> str:
    return world.stage.kubectl("describe", "gpustack", world.pool)


def events(world: World) -> str:
    return described(world).partition("Events:")[2]


def test_who_may_look_may_plan(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.join()
    world.declare(driver={"version": NEW})
    viewer = Shell(world, capsys, operator(world.stage, f"viewer-{world.pool}", granted=VIEWED))
    assert viewer("plan") == ExitCode.DONE, viewer.said
    assert "due 1 node" in viewer.said
    assert viewer("status") == ExitCode.DONE, viewer.said
    nobody = Shell(world, capsys, operator(world.stage, f"nobody-{world.pool}", granted=[]))
    assert nobody("plan") == ExitCode.FAILED
    assert "may not list gpustacks" in nobody.said
    assert VIEW_GRANT in nobody.said
