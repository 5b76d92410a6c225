"""Debian's containerd is exchanged for a later one by apt, and stays when all that grapnel wrote goes again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lab.nodes import NodeSpec
from lab.sources import again

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

NAME = "debs"
NEW, STARTS_NOTHING = "2.4.2", "2.4.3"
SETTINGS = "find /etc/containerd /etc/cni /etc/apt -type f -exec sha256sum '{}' + | sort -k 2"
HANDLER = "runtimes.nvidia"


@pytest.fixture(scope="module")
def node(site: Site) -> Iterator[Node]:
    """A node with Debian's containerd, whose apt knows later ones."""
    made = site.up(NodeSpec(NAME, suite="trixie", gpus=0, packages=("containerd",)))
    again.offer(
        made,
        again.Again("containerd", f"{NEW}-1", again.with_newest_containerd),
        again.Again("containerd", f"{STARTS_NOTHING}-1", again.with_idle_containerd),
    )
    yield made
    site.remove(NAME)


def say(node: Node, script: str) -> str:
    return node.run(["sh", "-c", script]).stdout.strip()


def package(node: Node) -> str:
    return say(node, "dpkg-query -W -f '${Version}' containerd")


def call(controller: Controller, verb: str, version: str = NEW) -> tuple[int, str]:
    runtime = {"entitlement": "env", "version": version}
    spec = {"driver": {"enabled": False}, "runtime": runtime, "plugin": {"enabled": False}}
    document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": spec}
    controller.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))
    done = controller.call(verb, NAME)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_later_containerd_stays_where_grapnel_goes(node: Node, controller: Controller) -> None:
    before = say(node, SETTINGS)

    code, said = call(controller, "apply")
    assert code == 0, said
    assert package(node) == f"{NEW}-1"
    assert HANDLER in say(node, "containerd config dump")
    assert controller.plan_items(NAME) == []

    code, said = call(controller, "apply", STARTS_NOTHING)
    assert code != 0
    assert "this shim starts nothing" in said
    assert "its former packages were put back, and containerd.service works with them" in said
    assert package(node) == f"{NEW}-1"
    assert "grapnel" not in say(node, "ctr namespaces list")

    code, said = call(controller, "remove")
    assert code == 0, said
    assert say(node, SETTINGS) == before
    assert package(node) == f"{NEW}-1"
    assert say(node, "systemctl is-active containerd") == "active"
    assert HANDLER not in say(node, "containerd config dump")
