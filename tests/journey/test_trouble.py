"""Failures of real fleets: nothing is lost, nothing is half done, and the reason is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from lab.nodes import NodeSpec
from tests.journey.conftest import fingerprint

if TYPE_CHECKING:
    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = pytest.mark.nodes

CONTAINERD_CONFIG = "etc/containerd/config.toml"
WAIT_S = 120.0


def test_a_version_that_does_not_exist_is_found_before_anything_is_changed(
    gpu_node: Node, controller: Controller
) -> None:
    controller.declare("550.999.99")
    before = fingerprint(gpu_node)

    planned = controller.grapnel("plan", "--limit", "n1")
    applied = controller.grapnel("apply", "--yes", "--limit", "n1")

    assert (planned.returncode, applied.returncode) == (1, 1)
    assert "550.999.99" in planned.stdout
    assert "550.163.01" in planned.stdout  # what there is instead
    assert fingerprint(gpu_node) == before


def test_an_unreachable_node_does_not_stop_the_others(gpu_node: Node, controller: Controller, site: Site) -> None:
    inventory = controller.folder / "inventory.yaml"
    inventory.unlink()
    inventory.write_text(
        site.inventory_path.read_text().replace(
            "  hosts:\n", "  hosts:\n    ghost:\n      ansible_host: 127.0.0.99\n", 1
        )
    )
    gpu_node.run(["apt-mark", "unhold", "libcuda1"])

    done = controller.grapnel("apply", "--yes", "--limit", "n1,ghost")

    assert done.returncode == 1
    assert "unreachable" in done.stdout
    assert "converged" in done.stdout
    assert "libcuda1" in gpu_node.run(["apt-mark", "showhold"]).stdout


def test_a_broken_engine_configuration_is_refused_with_the_parsers_words(
    gpu_node: Node, controller: Controller
) -> None:
    config = gpu_node.root / CONTAINERD_CONFIG
    good = config.read_text()
    broken = good + "\n[plugins\n"
    config.write_text(broken)
    try:
        before = fingerprint(gpu_node)
        done = controller.grapnel("apply", "--yes", "--limit", "n1")
        after = fingerprint(gpu_node)
    finally:
        config.write_text(good)

    assert done.returncode == 1
    assert "/etc/containerd/config.toml" in done.stdout
    assert "line" in done.stdout
    assert after == before
    assert controller.plan_items("n1") == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "control-c"])
def test_a_killed_apply_converges_when_it_is_run_again(how: signal.Signals, site: Site, controller: Controller) -> None:
    name = f"cut-{how.value}"
    node = site.up(NodeSpec(name, suite="trixie", gpus=1))
    with subprocess.Popen(
        ["grapnel", "apply", "-i", "inventory.yaml", "--yes", "--limit", name],
        cwd=controller.folder,
        env=controller.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as killed:
        wait_for_dpkg(node)
        os.kill(killed.pid, how)

    controller.converge(name)

    assert node.run(["dpkg", "--audit"]).stdout == ""
    assert node.run(["nvidia-smi", "--help"]).stdout.startswith("NVIDIA System Management Interface")
    site.remove(name)


def wait_for_dpkg(node: Node) -> None:
    """Return when the node is in the middle of installing packages."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        # Not any dpkg: facts are gathered by short ones. The brackets keep ssh's own shell from being found.
        if node.run(["pgrep", "-f", "[d]pkg .*--(unpack|configure)"], check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"no dpkg was seen on {node.name} within {WAIT_S:g} s")
