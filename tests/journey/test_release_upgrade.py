"""Grapnel itself is upgraded and taken back under a container with a GPU, and removed, whichever release wrote what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lab.cri import ContainerSpec
from lab.images import reference
from lab.kubelet import Kubelet
from lab.nodes import NodeSpec
from lab.pods import pods_on
from tests.journey.conftest import VERSION
from tests.journey.previous import FormerController, check_out
from tests.journey.snapshot import take_snapshot

if TYPE_CHECKING:
    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.long, pytest.mark.timeout(600)]

NAME = "older"
MAIN = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
UNIT = "/etc/systemd/system/grapnel-node.service"
# By a release that wrote nothing down of what it made; to the one after it, what it wrote again is an edit.
REWRITTEN = {DROP_IN, UNIT}
UNRECORDED = {MAIN, "/etc/containerd/conf.d", *(f"{path}.saved" for path in REWRITTEN), "/etc/dkms"}
RESOURCE = "nvidia.com/gpu"
STAY = ["sh", "-c", "nvidia-smi -L; exec sleep 600"]
CALM = {"none", "reload"}
RUNNING = "systemctl show -p MainPID,ExecMainStartTimestampMonotonic containerd; ctr -n k8s.io tasks ls"


def running(node: Node) -> set[str]:
    """Return which engine runs since when, with which containers in it."""
    return set(node.run(["sh", "-c", RUNNING]).stdout.splitlines())


def installed(node: Node) -> dict[str, str]:
    paths = [f"/usr/lib/grapnel/{part}/RELEASE" for part in ("hook", "node")]
    return dict(zip(paths, node.run(["cat", *paths]).stdout.split(), strict=True))


def move_to(controller: Controller, node: Node) -> dict[str, str]:
    """Bring the node to a release, which restarts nothing but the node daemon; return what is installed then."""
    items = controller.plan_items(NAME, "--no-cluster")
    assert {item["disruption"] for item in items} <= CALM, items
    assert {item["target"] for item in items if item["action"] in ("restart", "reload")} <= {"grapnel-node.service"}
    before = running(node)

    done = controller.call("apply", NAME)

    assert done.returncode == 0, done.stdout + done.stderr
    assert running(node) == before
    assert controller.plan_items(NAME, "--no-cluster") == []
    return installed(node)


def test_a_release_replaces_the_one_before_and_the_other_way_round(
    site: Site, controller: Controller, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = NodeSpec(NAME, suite="trixie", gpus=2, driver_module=VERSION, packages=("containerd",))
    node = site.up(spec)
    bare = take_snapshot(node)
    former = FormerController(controller.folder, checkout=check_out(tmp_path_factory.mktemp("former")))
    done = former.call("apply", NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    old = installed(node)

    with Kubelet(node.root / "var/lib/kubelet") as kubelet, pods_on(node) as pods:
        kubelet.wait_for_devices(RESOURCE, 2, timeout_s=30)
        pods.load_images(["pause", "gpu-shell"])
        stays = ContainerSpec(image=reference("gpu-shell"), command=STAY)
        with pods.staying(stays, assignment=kubelet.allocate(RESOURCE, 1, "one")):
            new = move_to(controller, node)
            assert not set(new.values()) & set(old.values())
            assert move_to(former, node) == old
        kubelet.release("one")

    _removed(node, controller, bare)
    site.remove(NAME)


def _removed(node: Node, controller: Controller, bare: object) -> None:
    """Take all of it away with this release: what the one before has written, too."""
    done = controller.grapnel("remove", "--no-cluster", NAME, "--plan", "--json")
    (found,) = json.loads(done.stdout)["nodes"]
    unknown = {note.split()[0] for note in found["notes"]}  # what the release before kept no record of
    done = controller.call("remove", NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    left = {path for path in bare.difference(take_snapshot(node)) if not path.startswith("/var/lib/kubelet")}  # type: ignore[attr-defined] # a Snapshot
    assert unknown <= {MAIN, *REWRITTEN}
    assert left <= (UNRECORDED if unknown else set()), left
