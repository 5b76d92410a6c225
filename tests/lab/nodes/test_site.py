"""Sites: bare nodes, side by side, and gone without a trace whatever happened before."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.machine.errors import SiteError
from lab.nodes import Node, NodeSpec, Site, lost_sites
from lab.nodes.cgroup import hierarchies
from lab.nodes.network import bridge_owners

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nodes


def command_lines() -> Iterator[str]:
    """Return those of all processes, whichever end meanwhile."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().decode(errors="replace")


def traces(name: str) -> list[str]:
    """Return what of a site is still on the machine."""
    groups = [str(path) for hierarchy in hierarchies() for path in hierarchy.glob(f"gn-{name}.*")]
    interfaces = [link for link in bridge_owners() if link == f"gn-{name}"]
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"/lab/{name}/" in line]
    processes = [line for line in command_lines() if f"/lab/{name}/" in line]
    sockets = [str(path) for path in Path("/run/grapnel-lab").glob(f"gn-{name}")]
    return groups + interfaces + mounts + processes + sockets


def test_a_node_is_bare_and_reaches_nothing_outside(node: Node) -> None:
    assert node.run(["systemctl", "is-system-running"]).stdout == "running\n"
    assert "default" not in node.run(["ip", "route"]).stdout
    wanted = "command -v containerd runc nvidia-smi"
    assert node.run(["sh", "-c", wanted], check=False).stdout == ""
    node.run(["apt-get", "-qq", "update"])
    policy = node.run(["apt-cache", "policy"]).stdout
    assert {line.split()[1] for line in policy.splitlines() if " Packages" in line} == {"file:/srv/bundle"}


def test_pci_shows_the_gpus_and_nothing_else(node: Node) -> None:
    listed = node.run(["ls", "/sys/bus/pci/devices"]).stdout.split()
    assert listed == [gpu.pci_address for gpu in node.gpus]


def test_up_again_is_the_same_node_and_another_specification_is_refused(site: Site, node: Node) -> None:
    leader = node.machine.leader()
    assert site.up(node.spec).machine.leader() == leader
    with pytest.raises(SiteError, match="node n1 exists as"):
        site.up(NodeSpec("n1", gpus=3))


def test_a_power_cut_keeps_what_was_written(site: Site, node: Node) -> None:
    node.run(["sh", "-c", "echo kept > /root/file; sync"])
    site.crash(node.name)
    assert [status.is_running for status in site.status()] == [False]
    site.start(node.name)
    assert node.run(["cat", "/root/file"]).stdout == "kept\n"


def test_a_node_that_is_off_starts_again(site: Site, node: Node) -> None:
    site.down(node.name)
    assert not node.is_running
    assert site.start(node.name).run(["hostname"]).stdout == "n1\n"


def test_ansible_reaches_the_nodes(site: Site, node: Node) -> None:
    ansible = str(Path(sys.executable).with_name("ansible"))
    command = [ansible, "-i", str(site.inventory_path), "gpu_nodes", "-m", "ansible.builtin.ping"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"{node.name} | SUCCESS" in done.stdout, done.stderr


def test_destroying_a_site_leaves_its_neighbour_alone(site: Site, node: Node) -> None:
    neighbour = Site(f"{site.name}-b")
    try:
        neighbour.up(NodeSpec("n1", gpus=0))
        other = neighbour.node("n1")
        assert other.address.rpartition(".")[0] != node.address.rpartition(".")[0]
        site.destroy()
        assert other.run(["true"]).returncode == 0
    finally:
        neighbour.destroy()
    site.destroy()
    assert traces(site.name) == []
    assert not site.folder.exists()


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.4])
def test_a_site_whose_command_was_killed_can_be_destroyed_or_used(fresh_site: Site, delay_s: float) -> None:
    up = [sys.executable, "-P", "-m", "lab", "up", "n1", "--site", fresh_site.name]
    with subprocess.Popen(up, env={**os.environ, "PYTHONPATH": str(Path.cwd())}) as command:
        while not (fresh_site.folder / "nodes/n1/supervisor.json").exists():
            assert command.poll() is None
            time.sleep(0.005)
        time.sleep(delay_s)
        command.kill()
    assert fresh_site.up(NodeSpec("n1")).run(["true"]).returncode == 0
    fresh_site.destroy()
    assert traces(fresh_site.name) == []


def test_a_site_whose_folder_was_lost_is_found_and_destroyed(fresh_site: Site) -> None:
    fresh_site.up(NodeSpec("n1", gpus=0))
    shutil.rmtree(fresh_site.folder)
    assert lost_sites()[f"gn-{fresh_site.name}"] == str(fresh_site.folder)
    fresh_site.destroy()
    assert traces(fresh_site.name) == []


def test_a_site_of_another_state_folder_is_not_touched(
    fresh_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = fresh_site.up(NodeSpec("n1", gpus=0))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(SiteError, match=f"belongs to {fresh_site.folder}"):
        Site(fresh_site.name).destroy()
    assert running.is_running
