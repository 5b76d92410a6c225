"""A real kubelet gets settings, keeps working, gets its former ones back when it refuses them, and in the end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab import golang
from lab.cluster.node_files import CONTAINERD_PACKAGES, CONTAINERD_SOCKET
from lab.nodes import NodeSpec
from tests.journey.conftest import VERSION
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

NAME = "aligned"
MAIN = "/etc/kubernetes/kubelet.yaml"
FOLDER = "/etc/kubernetes/kubelet.conf.d"
# Without a cluster: it runs the pods of a folder, of which there is none.
ALONE = f"""\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
# a kubelet without an API server
authentication:
  anonymous: {{enabled: true}}
  webhook: {{enabled: false}}
authorization:
  mode: AlwaysAllow
containerRuntimeEndpoint: {CONTAINERD_SOCKET}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
"""
UNIT = """\
[Unit]
After=containerd.service
[Service]
ExecStart=/usr/local/bin/kubelet --config={main} {more}
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
PINNED = {
    "topologyManagerPolicy": "best-effort",
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"},
    "reservedSystemCPUs": "0",
}
TOO_MANY = {**PINNED, "reservedSystemCPUs": "0-511"}  # a list of CPUs, and more than there are


@pytest.fixture(scope="module")
def node(site: Site) -> Iterator[Node]:
    kubelet = (golang.kubernetes(say=lambda _: None) / "kubelet").resolve()
    binds = ((str(kubelet), "/usr/local/bin/kubelet"),)
    yield site.up(
        NodeSpec(NAME, suite="trixie", gpus=1, driver_module=VERSION, packages=CONTAINERD_PACKAGES, binds=binds)
    )
    site.remove(NAME)


def start_kubelet(node: Node, more: str) -> None:
    """Have the kubelet run with its own file and, if it is told so, with a folder beside it."""
    write(node, MAIN, ALONE)
    write(node, f"{FOLDER}/README", "")
    write(node, "/etc/systemd/system/kubelet.service", UNIT.format(main=MAIN, more=more))
    node.run(["systemctl", "daemon-reload"])
    node.run(["systemctl", "enable", "kubelet"])
    node.run(["systemctl", "restart", "kubelet"])
    wait_until(lambda: state_of(node).get("policyName") == "none", lambda: journal(node))


def journal(node: Node) -> str:
    return node.run(["journalctl", "--unit=kubelet", "--lines=30", "--output=cat", "--no-pager"]).stdout


def write(node: Node, path: str, text: str) -> None:
    node.run(["sh", "-c", 'mkdir -p "$(dirname "$1")" && printf %s "$2" > "$1"', "sh", path, text])


def read(node: Node, path: str) -> str:
    return node.run(["sh", "-c", f"cat {path} 2>/dev/null || true"]).stdout


def state_of(node: Node) -> dict[str, Any]:
    """Return what the CPU manager has written down, nothing before it has."""
    text = read(node, "/var/lib/kubelet/cpu_manager_state")
    return dict(json.loads(text)) if text else {}


def declare(controller: Controller, kubelet: dict[str, object]) -> None:
    stack = {"driver": {"version": VERSION, "kernelModule": "none"}, "node": {"kubelet": kubelet}}
    document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": stack}
    controller.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))


def is_up(node: Node) -> bool:
    asked = node.run(
        ["python3", "-c", "import urllib.request as r; print(r.urlopen('http://127.0.0.1:10248/healthz').read())"]
    )
    return "ok" in asked.stdout


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(f"--config-dir={FOLDER}", id="in its folder"),
        pytest.param("", id="in its own file", marks=pytest.mark.long),
    ],
)
def test_settings_come_and_go(node: Node, controller: Controller, more: str) -> None:
    start_kubelet(node, more)
    declare(controller, PINNED)
    done = controller.call("apply")
    assert done.returncode == 0, done.stdout + done.stderr
    assert state_of(node)["policyName"] == "static"
    assert controller.plan_items(NAME) == []
    before = read(node, MAIN), read(node, f"{FOLDER}/99-grapnel.conf")
    assert bool(more) is (before[0] == ALONE)

    declare(controller, TOO_MANY)
    refused = controller.call("apply")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "the former settings were put back" in " ".join((refused.stdout + refused.stderr).split())
    assert (read(node, MAIN), read(node, f"{FOLDER}/99-grapnel.conf")) == before
    assert is_up(node)
    assert state_of(node)["policyName"] == "static"

    declare(controller, {})
    back = controller.call("apply")
    assert back.returncode == 0, back.stdout + back.stderr
    assert (read(node, MAIN), read(node, f"{FOLDER}/99-grapnel.conf")) == (ALONE, "")
    assert state_of(node)["policyName"] == "none"
    assert is_up(node)
    assert controller.plan_items(NAME) == []
