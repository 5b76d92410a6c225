"""`grapnel remove` gives a machine back as it was: every file, package, unit and group, and what was edited since."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.nodes import NodeSpec
from tests.journey.conftest import VERSION
from tests.journey.foreseen import look, not_done, not_shown, steps_of
from tests.journey.snapshot import take_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

NAME = "gone"
MAIN = "/etc/containerd/config.toml"
DAEMON_JSON = "/etc/docker/daemon.json"
NODE_JSON = "/etc/grapnel/node.json"
STATE = "/var/lib/grapnel/node/"  # what the daemon notes while it runs
WITH_ENGINE = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{version}", kernelModule: none}}
  runtime: {{engine: {engine}, entitlement: env}}
"""
WITHOUT_DRIVER = "apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\nspec:\n  driver: {enabled: false}\n"
FOREIGN = '{"data-root": "/var/lib/containerd/docker", "bridge": "none",\n "iptables": false}\n'


def succeed(controller: Controller, verb: str, *words: str) -> str:
    done = controller.call(verb, NAME, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def append(node: Node, path: str, text: str) -> None:
    node.run(["sh", "-c", 'printf %s "$2" >> "$1"', "sh", path, text])


@pytest.fixture
def controller(controller: Controller, installed: Path) -> Controller:
    """An operator with the wheel of a release alone, as for `gpu_node`."""
    return replace(controller, programs=installed)


@pytest.fixture
def bare(site: Site) -> Node:
    site.up(NodeSpec(NAME, suite="trixie", gpus=2, driver_module=VERSION, packages=("containerd",)))
    return site.node(NAME)


def test_a_removed_node_is_as_it_was_and_keeps_what_was_edited(site: Site, controller: Controller, bare: Node) -> None:
    before = take_snapshot(bare)
    succeed(controller, "apply")
    applied = take_snapshot(bare)
    foreseen = controller.grapnel("remove", "--no-cluster", "--plan", "--json")
    found, steps = json.loads(foreseen.stdout)["nodes"][0], steps_of(foreseen.stdout, NAME)
    untouched = look(bare, steps)
    assert (foreseen.returncode, found["notes"], found["problems"]) == (0, [], [])
    since = [path for path in applied.difference(untouched.snapshot) if not path.startswith(STATE)]
    assert since == [], "a plan only looks"

    assert f"{NAME}  " in succeed(controller, "remove")

    after = look(bare, steps)
    assert before.difference(after.snapshot) == {}
    assert not_shown(steps, untouched, after) == {}
    assert not_done(steps, untouched, after) == []
    assert "packages" in not_shown([step for step in steps if step[0] != "purge"], untouched, after)
    assert not_done([("remove", MAIN)], untouched, after), "it is still there"
    assert {("restore", MAIN), ("unload", "kernel module nvidia"), ("remove", "/var/lib/grapnel/driver")} <= {*steps}
    assert [target for action, target in steps if action == "purge"]
    status = controller.grapnel("status", "--no-cluster", "--json")
    assert [one["state"] for one in json.loads(status.stdout)["nodes"]] == ["idle"]

    controller.folder.joinpath("grapnel.yaml").write_text(WITHOUT_DRIVER)
    succeed(controller, "apply")
    append(bare, MAIN, "\n[debug]\n  level = 'info'  # somebody's own\n")
    append(bare, NODE_JSON, "\n")
    bare.run(["sed", "-i", "s/^version = 2/# another release of the engine\\n&/", MAIN])
    succeed(controller, "apply")  # it writes again what it finds changed
    append(bare, NODE_JSON, " ")
    kept = bare.run(["sh", "-c", f"grep -v imports {MAIN}"]).stdout

    said = succeed(controller, "remove", "--runtime", "--daemon", "--hook")

    assert f"{NODE_JSON} was edited since" in " ".join(said.split())
    assert bare.run(["cat", MAIN]).stdout == kept
    assert bare.run(["cat", f"{NODE_JSON}.saved"]).stdout.endswith("}\n ")
    bare.run(["rm", "-r", "/etc/grapnel"])
    assert set(before.difference(take_snapshot(bare))) == {MAIN}
    site.remove(NAME)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_an_engine_that_grapnel_installed_goes_with_its_settings(
    engine: str, site: Site, controller: Controller
) -> None:
    site.up(
        NodeSpec(NAME, suite="trixie", gpus=1, driver_module=VERSION),
        lambda layer, _: layer.write(DAEMON_JSON, FOREIGN),
    )
    node = site.node(NAME)
    controller.folder.joinpath("grapnel.yaml").write_text(WITH_ENGINE.format(version=VERSION, engine=engine))
    before = take_snapshot(node)
    succeed(controller, "apply")
    assert node.run([engine if engine == "podman" else "dockerd", "--version"]).stdout
    assert ("nvidia" in node.run(["cat", DAEMON_JSON]).stdout) is (engine == "docker")

    succeed(controller, "remove")

    assert before.difference(take_snapshot(node)) == {}
    site.remove(NAME)
