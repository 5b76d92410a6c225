"""``python3 -m lab.demo``: boots a node, plans, applies, runs two containers, removes all of it again."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cri import ContainerSpec
from lab.demo.screen import DemoFailed, Screen
from lab.images import reference
from lab.kubelet import Kubelet
from lab.machine.errors import LabError
from lab.nodes import NodeSpec, Site
from lab.pods import pods_on

if TYPE_CHECKING:
    from lab.nodes import Node

CHECKOUT = Path(__file__).parents[2]
RESOURCE = "nvidia.com/gpu"
MODULE = "550.163.01"  # the simulated kernel module that the lab loads at boot
GIVEN = 2  # the GPU that container one gets
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
metadata:
  name: demo
spec:
  driver:
    version: "550.163.01"
    kernelModule: none # the lab provides the module on this node
  runtime:
    entitlement: kubelet
  plugin:
    resource: nvidia.com/gpu
"""


def main() -> int:
    """Run the demo on its own site, which is removed at the end in any case; exit status 0 or 1."""
    site = Site("demo")
    try:
        site.destroy()  # leftovers of a killed run
        with tempfile.TemporaryDirectory(prefix="grapnel-demo-") as folder:
            screen = Screen(Path(folder), environment(site, folder))
            try:
                show(screen, site)
            finally:
                screen.heading("remove all of it again")
                site.destroy()
                screen.show(f"site {site.name} is gone")
    except (DemoFailed, LabError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def environment(site: Site, home: str) -> dict[str, str]:
    """Return the environment of the commands: this checkout's grapnel and the site's inventory.

    A separate home, so that the user's kubeconfig has no effect: the demo uses no cluster.
    """
    own = {"GRAPNEL_PAYLOAD": str(CHECKOUT / "dist" / "payload"), "ANSIBLE_INVENTORY": str(site.inventory_path)}
    nobody = {"HOME": home, "KUBECONFIG": ""}
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **nobody, **own}


def show(screen: Screen, site: Site) -> None:
    """Run the whole demo."""
    screen.heading("a bare Debian 13 node boots (systemd, ssh; four simulated GPUs; no driver files, no engine)")
    node = site.up(NodeSpec(name="n1", suite="trixie", gpus=4, driver_module=MODULE))
    on_node(
        screen,
        node,
        ["sh", "-c", "cat /etc/debian_version; command -v nvidia-smi containerd runc || echo none of them"],
    )
    (screen.folder / "inventory.yaml").symlink_to(site.inventory_path)
    (screen.folder / "grapnel.yaml").write_text(DECLARATION)
    screen.heading("the declaration")
    screen.run("cat", "grapnel.yaml")
    screen.heading("what would change, and why (nothing is changed yet)")
    screen.run("grapnel", "plan", "-i", "inventory.yaml")
    with Kubelet(node.root / "var/lib/kubelet") as kubelet:
        screen.heading("apply it")
        screen.run("grapnel", "apply", "-i", "inventory.yaml", "--yes")
        screen.heading("a second plan has nothing to do")
        screen.run("grapnel", "plan", "-i", "inventory.yaml")
        containers(screen, node, kubelet)


def containers(screen: Screen, node: Node, kubelet: Kubelet) -> None:
    """Run the container that was given a GPU, and the one that was not."""
    screen.heading("the node, through its own driver files")
    on_node(screen, node, ["nvidia-smi", "-L"])
    kubelet.wait_for_devices(RESOURCE, node.spec.gpus)
    with pods_on(node) as pods:
        pods.load_images()
        given = node.gpus[GIVEN].uuid
        assignment = kubelet.allocate(RESOURCE, 1, "one", device_ids=[given])
        screen.heading(f"container one: the device plugin's Allocate gave it GPU {GIVEN} ({given})")
        screen.prompt("nvidia-smi -L        # in a container of handler nvidia, image gpu-shell")
        one = ContainerSpec(name="one", image=reference("gpu-shell"), command=["nvidia-smi", "-L"])
        finished = pods.run(one, assignment=assignment)
        screen.show(finished.log)
        if finished.exit_code or finished.log.count("UUID") != 1 or given not in finished.log:
            raise DemoFailed(f"container one does not see exactly {given}")
        screen.heading("container two: asked for nothing, but its image says NVIDIA_VISIBLE_DEVICES=all")
        command = "echo $NVIDIA_VISIBLE_DEVICES; ls /dev/nvidia* 2>&1; nvidia-smi -L"
        screen.prompt(f"{command}        # in a container of handler nvidia, image greedy")
        two = ContainerSpec(name="two", image=reference("greedy"), command=["sh", "-c", command])
        finished = pods.run(two)
        screen.show(finished.log)
        if "GPU-" in finished.log or not finished.exit_code:
            raise DemoFailed("container two sees a GPU that it was not given")


def on_node(screen: Screen, node: Node, command: list[str]) -> None:
    """Run a command on the node over ssh and show it."""
    screen.on_node(node.name, node.run(command), command)


if __name__ == "__main__":
    sys.exit(main())
