"""From a bare node to a GPU node: plan, apply, plan again; with the command line and with plain ansible-playbook."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.nodes import NodeSpec
from provision.planning.engines.containerd.engine import DEBIANS_MAIN
from provision.planning.engines.containerd.imports import MAIN_PATH
from tests.attack.newest import NewestController
from tests.journey.conftest import OLD_VERSION, ROOT, VERSION, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = pytest.mark.nodes


def found_by_the_timer(node: Node) -> dict[str, list[str]]:
    """Let the node compare itself now; return what differs by kind, or why it was not compared."""
    node.run(["systemctl", "start", "grapnel-drift.service"])
    result = json.loads(node.run(["cat", "/var/lib/grapnel/drift/result.json"]).stdout)
    assert not result["reason"], result
    kinds = {each["kind"] for each in result["differences"]}
    return {kind: [each["name"] for each in result["differences"] if each["kind"] == kind] for kind in kinds}


def assert_known(node: Node) -> None:
    """Check that the package brings the configuration that a plan for a node without it is made from."""
    conffiles = node.run(["dpkg-query", "-W", "-f", "${Conffiles}\\n", "containerd"]).stdout
    digests = dict(line.split()[:2] for line in conffiles.splitlines() if line.strip())
    noted = hashlib.md5(DEBIANS_MAIN.encode(), usedforsecurity=False)  # as dpkg does
    assert digests[MAIN_PATH] == noted.hexdigest()


def test_a_plan_tells_what_would_change_and_changes_nothing(site: Site, controller: Controller) -> None:
    node = site.up(NodeSpec("bare", suite="trixie", gpus=2))
    before = fingerprint(node)

    items = controller.plan_items("bare")

    assert {"driver", "runtime", "node_daemon"} == {item["role"] for item in items}
    assert ("libcuda1", f"{VERSION}-2") in {(item["target"], item["to"]) for item in items}
    assert all(item["reason"] and item["disruption"] for item in items)
    assert fingerprint(node) == before
    site.remove("bare")


def test_an_applied_node_is_as_declared(gpu_node: Node) -> None:
    shown = gpu_node.run(["dpkg-query", "-W", "-f", "${Version} ${db:Status-Want}", "libcuda1"]).stdout
    config = gpu_node.run(["containerd", "config", "dump"]).stdout

    assert shown == f"{VERSION}-2 hold"
    assert_known(gpu_node)
    assert "container_annotations" in config
    assert "restrict_oom_score_adj = true" in config  # the administrator's own key is still in force
    units = ["containerd", "grapnel-node", "grapnel-inventory.path"]
    assert gpu_node.run(["systemctl", "is-active", *units]).stdout.split() == ["active"] * 3
    facts = json.loads(gpu_node.run(["cat", "/run/grapnel/nvml.json"]).stdout)
    inventory = json.loads(gpu_node.run(["cat", "/run/grapnel/inventory.json"]).stdout)
    assert [gpu["uuid"] for gpu in facts["gpus"]] == [gpu.uuid for gpu in gpu_node.gpus]
    assert (inventory["driver_version"], inventory["cuda_version"]) == (VERSION, facts["cuda_version"])
    assert "libcuda1" not in gpu_node.run(["apt-get", "-s", "dist-upgrade"]).stdout


def test_a_second_apply_changes_nothing(gpu_node: Node, controller: Controller) -> None:
    before = fingerprint(gpu_node)

    done = controller.grapnel("apply", "--yes", "--limit", "n1")

    assert done.returncode == 0, done.stdout + done.stderr
    assert fingerprint(gpu_node) == before


def test_drift_is_planned_with_its_reason_and_mended(gpu_node: Node, controller: Controller) -> None:
    gpu_node.run(["apt-mark", "unhold", "libcuda1"])

    items, found = controller.plan_items("n1"), found_by_the_timer(gpu_node)
    controller.converge_as_planned("n1")

    assert found == {"hold": ["libcuda1"]}
    assert found_by_the_timer(gpu_node) == {}
    assert [item["action"] for item in items] == ["hold"]
    assert "libcuda1" in items[0]["reason"]
    assert "libcuda1" in gpu_node.run(["apt-mark", "showhold"]).stdout


def test_the_node_itself_finds_a_file_that_was_edited_and_a_service_that_was_stopped(gpu_node: Node) -> None:
    gpu_node.run(["chmod", "0600", "/etc/grapnel/hook.json"])
    gpu_node.run(["systemctl", "stop", "grapnel-drift.timer"])

    found = found_by_the_timer(gpu_node)
    gpu_node.run(["chmod", "0644", "/etc/grapnel/hook.json"])
    gpu_node.run(["systemctl", "start", "grapnel-drift.timer"])

    assert found == {"file": ["/etc/grapnel/hook.json"], "service": ["grapnel-drift.timer"]}
    assert found_by_the_timer(gpu_node) == {}


def test_a_rebooted_node_is_still_as_declared(gpu_node: Node, site: Site, controller: Controller) -> None:
    site.reboot(gpu_node.name)

    assert controller.plan_items("n1") == []
    assert gpu_node.run(["nvidia-smi", "-L"]).stdout.count("GPU-") == len(gpu_node.gpus)


@pytest.mark.long
def test_ansible_playbook_does_the_same_on_debian_12(site: Site, controller: Controller) -> None:
    node = site.up(NodeSpec("old", suite="bookworm", gpus=1, driver_module=OLD_VERSION))
    controller.declare(OLD_VERSION)
    playbook = ["ansible-playbook", str(ROOT / "playbooks" / "site.yml"), "-i", "inventory.yaml", "--limit", "old"]
    stack = ["-e", f"grapnel_stack_file={controller.folder / 'grapnel.yaml'}"]

    node.run(["rm", "/etc/containerd/config.toml"])  # of the site's administrator: the package brings its own
    before = fingerprint(node)
    checked = controller.run(*playbook, *stack, "--check", "--diff")
    untouched = fingerprint(node)
    done = controller.run(*playbook, *stack)
    again = controller.run(*playbook, *stack)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert untouched == before
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=0" in again.stdout, again.stdout
    assert controller.plan_items("old") == []
    assert_known(node)
    config = node.run(["containerd", "config", "dump"]).stdout
    assert 'bin_dir = "/usr/lib/cni"' in config
    assert '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]' in config
    assert node.run(["nvidia-smi", "-L"]).stdout.count("GPU-") == 1
    site.remove("old")


def test_the_newest_ansible_core_mends_a_node_over_ssh(gpu_node: Node, site: Site, controller: Controller) -> None:
    """A wheel that is installed with Python 3.12 or newer brings it."""
    newest = NewestController(controller.folder, places=(site.folder, site.access.control_dir))
    gpu_node.run(["apt-mark", "unhold", "libcuda1"])
    gpu_node.run(["chmod", "0600", "/etc/grapnel/hook.json"])

    newest.converge("n1")

    assert controller.plan_items("n1") == []
    assert "libcuda1" in gpu_node.run(["apt-mark", "showhold"]).stdout
    assert gpu_node.run(["stat", "-c", "%a", "/etc/grapnel/hook.json"]).stdout == "644\n"


def test_the_collection_of_a_release_finds_an_applied_node_as_declared(
    gpu_node: Node, controller: Controller, release: Path, installed: Path
) -> None:
    operator = replace(controller, programs=(installed / "grapnel").resolve().parent)  # Ansible's are beside it
    archive = str(next(release.glob("grapnel-node-*.tar.gz")))

    got = operator.run("ansible-galaxy", "collection", "install", archive, "--offline")
    site = ".ansible/collections/ansible_collections/grapnel/node/site.yml"
    stack = ["-e", f"grapnel_stack_file={controller.folder / 'grapnel.yaml'}"]
    done = operator.run("ansible-playbook", site, "-i", "inventory.yaml", "--limit", gpu_node.name, *stack)

    assert got.returncode == 0, got.stdout + got.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=0" in done.stdout, done.stdout
