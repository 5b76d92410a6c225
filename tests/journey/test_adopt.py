"""A node that NVIDIA's toolkit has set up: `init` describes it, and its handler is taken over."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from lab.nodes import NodeSpec, Site
from tests.journey.conftest import OLD_VERSION, Controller, fingerprint
from tests.worker import of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node
    from lab.nodes.layer import Layer

pytestmark = pytest.mark.nodes

CRI = "io.containerd.grpc.v1.cri"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
ADOPTED = "/etc/containerd/conf.d/99-nvidia-adopted.toml"
PROGRAM = "/usr/bin/nvidia-container-runtime"
MAIN = f"""\
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."{CRI}".cni]
  bin_dir = "/usr/lib/cni"
"""
HANDLERS = "".join(
    f'[plugins."{CRI}".containerd.runtimes.{name}]\nruntime_type = "io.containerd.runc.v2"\n'
    f'[plugins."{CRI}".containerd.runtimes.{name}.options]\n{options}SystemdCgroup = true\n'
    for name, options in (
        ("nvidia", f'BinaryName = "{PROGRAM}"\n'),
        ("nvidia-cdi", f'BinaryName = "{PROGRAM}.cdi"\n'),
        ("runc", ""),
    )
)
TOOLKIT = f"version = 2\n{HANDLERS}"


def furnish(layer: Layer, _: str) -> None:
    """Give the node what `nvidia-ctk runtime configure --runtime=containerd` and the package leave."""
    layer.write("/etc/containerd/config.toml", MAIN)
    layer.write(DROP_IN, TOOLKIT)
    layer.write("/etc/nvidia-container-runtime/config.toml", "[nvidia-container-runtime]\n")
    layer.write(PROGRAM, '#!/bin/sh\nexec runc "$@"\n', 0o755)


@pytest.fixture(scope="module")
def own_site() -> Iterator[Site]:
    """A site of this file's own."""
    made = Site(of_this_worker("adopt"))
    made.destroy()
    try:
        yield made
    finally:
        made.destroy()


@pytest.fixture(scope="module")
def node(own_site: Site) -> Node:
    """A node with containerd, and the toolkit's files."""
    made = own_site.up(NodeSpec("n1", suite="trixie", gpus=1, driver_module=OLD_VERSION), furnish)
    made.run(["apt-get", "-q", "update"])
    made.run(["apt-get", "-qy", "-o", "Dpkg::Options::=--force-confold", "install", "containerd"])
    return made


@pytest.fixture(scope="module")
def controller(own_site: Site, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Controller:  # noqa: ARG001 - it is up
    """An operator's folder with the inventory, and no declaration."""
    made = Controller(tmp_path_factory.mktemp("adopt"))
    made.folder.joinpath("inventory.yaml").symlink_to(own_site.inventory_path)
    return made


def runtimes(node: Node) -> dict[str, Any]:
    """Return the handlers with which containerd runs."""
    dump = tomllib.loads(node.run(["containerd", "config", "dump"]).stdout)
    found: dict[str, Any] = dump["plugins"][CRI]["containerd"]["runtimes"]
    return found


def test_init_describes_the_node_and_touches_nothing(controller: Controller, node: Node) -> None:
    before = fingerprint(node)

    done = controller.run("grapnel", "init", "-i", "inventory.yaml")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "docs/migrate/nvidia-container-toolkit.md" in done.stdout
    assert "apply changes nothing on 1 node" in done.stdout
    assert controller.plan_items("n1") == []
    assert fingerprint(node) == before


def test_the_handler_is_taken_over_and_the_others_stay_in_force(controller: Controller, node: Node) -> None:
    file = controller.folder / "grapnel.yaml"
    text = file.read_text()
    assert "    adopt: true\n" in text
    head, runtime, rest = text.partition("  runtime:\n")
    file.write_text(head + runtime + rest.replace("enabled: false", "enabled: true", 1))

    planned = controller.grapnel("plan", "--json")
    assert [each["code"] for each in json.loads(planned.stdout)["plans"][0]["warnings"]] == [
        "product-nvidia-container-toolkit"
    ]
    controller.converge("n1")

    found = runtimes(node)
    assert found["nvidia"]["base_runtime_spec"] == "/etc/grapnel/containerd/base-spec.json"
    assert found["nvidia"]["options"]["BinaryName"] == ""
    assert found["nvidia"]["options"]["SystemdCgroup"] is True
    assert found["nvidia-cdi"]["options"]["BinaryName"] == f"{PROGRAM}.cdi"
    assert node.run(["cat", ADOPTED]).stdout == TOOLKIT
    assert node.run(["systemctl", "is-active", "containerd"]).stdout.strip() == "active"


def test_remove_gives_the_handler_back_byte_for_byte(controller: Controller, node: Node) -> None:
    done = controller.call("remove", "--runtime", "--hook")

    assert done.returncode == 0, done.stdout + done.stderr
    assert node.run(["cat", DROP_IN]).stdout == TOOLKIT
    assert node.run(["cat", "/etc/containerd/config.toml"]).stdout == MAIN
    assert node.run(["ls", "/etc/containerd/conf.d"]).stdout.split() == ["99-nvidia.toml"]
    assert runtimes(node)["nvidia"]["options"]["BinaryName"] == PROGRAM
    assert node.run(["systemctl", "is-active", "containerd"]).stdout.strip() == "active"
