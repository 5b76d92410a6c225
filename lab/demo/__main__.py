"""``python3 -m lab.demo``: boots a node, plans, stages, applies, runs two containers, removes all of it again.

Unless the cache has it, the driver's kernel module is compiled meanwhile, for as long as it is not needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab import modules
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
SUITE = "trixie"
VERSION = "550.163.01"
IMAGES = ("pause", "gpu-shell", "greedy")
COMPILE = (sys.executable, "-P", "-m", "lab.modules", SUITE, VERSION)
COMPILING = "one to two minutes"
GIVEN = 2  # the GPU that container one gets
DECLARATION = f"""\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
metadata:
  name: demo
spec:
  driver:
    version: "{VERSION}"
    companions: [] # persistenced needs a device that a simulated GPU does not have
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
            compiling = subprocess.Popen(COMPILE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            try:
                show(screen, site, compiling)
            finally:
                compiling.terminate()
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


def show(screen: Screen, site: Site, compiling: subprocess.Popen[str]) -> None:
    """Run the whole demo."""
    screen.heading("a Debian 13 node boots (systemd, ssh, dkms; four simulated GPUs; no driver, no engine)")
    node = site.up(NodeSpec(name="n1", suite=SUITE, gpus=4, builder=True))
    node.run(["sh", "-c", "rm -f /boot/initrd.img-*"])  # it boots without, and rebuilding one shows nothing
    on_node(screen, node, ["sh", "-c", "cat /etc/debian_version; uname -r; modinfo nvidia; nvidia-smi"], check=False)
    (screen.folder / "inventory.yaml").symlink_to(site.inventory_path)
    (screen.folder / "grapnel.yaml").write_text(DECLARATION)
    screen.heading("the declaration")
    screen.run("cat", "grapnel.yaml")
    screen.heading("what would change, and why (nothing is changed yet)")
    screen.run("grapnel", "plan", "-i", "inventory.yaml")
    screen.heading(f"the kernel module of {VERSION}, which Debian's dkms builds for this kernel, is handed over")
    hand_over_module(screen, node, compiling)
    screen.heading("stage it: packages and module are on the node and checked, nothing is touched")
    screen.run("grapnel", "stage", "-i", "inventory.yaml")
    with Kubelet(node.root / "var/lib/kubelet") as kubelet:
        screen.heading("apply it")
        screen.run("grapnel", "apply", "-i", "inventory.yaml", "--yes")
        screen.heading("a second plan has nothing to do")
        screen.run("grapnel", "plan", "-i", "inventory.yaml")
        containers(screen, node, kubelet)


def hand_over_module(screen: Screen, node: Node, compiling: subprocess.Popen[str]) -> None:
    """Give the node the module that its plan needs, as a bundle would, once it is compiled."""
    if compiling.poll() is None:
        screen.show(f"dkms compiles it since the demo began, once: {COMPILING} on two cores; what follows waits for it")
    argv = ["grapnel", "plan", "-i", "inventory.yaml", "--json"]
    done = subprocess.run(
        argv, cwd=screen.folder, env=dict(screen.environment), stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise DemoFailed(f"{' '.join(argv)} ended with {done.returncode}")
    items = json.loads(done.stdout)["plans"][0]["items"]
    change = next(str(item["to"]) for item in items if item["action"] == "stage")
    said, _ = compiling.communicate()
    if compiling.returncode:
        raise DemoFailed(f"{' '.join(COMPILE[1:])} ended with {compiling.returncode}")
    archive = Path(said.strip())
    modules.hand_over(node, change, archive)
    screen.show(f"{archive.name}: {archive.stat().st_size >> 20} MiB, for driver change {change}")


def containers(screen: Screen, node: Node, kubelet: Kubelet) -> None:
    """Run the container that was given a GPU, and the one that was not."""
    screen.heading("the node: the module that dkms has installed and the kernel has loaded, and the driver's own tool")
    on_node(screen, node, ["dkms", "status"])
    on_node(screen, node, ["sh", "-c", "modinfo nvidia-current | grep -E '^(filename|version|signer):'; lsmod"])
    on_node(screen, node, ["nvidia-smi", "-L"])
    kubelet.wait_for_devices(RESOURCE, node.spec.gpus)
    with pods_on(node) as pods:
        pods.load_images(IMAGES)
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


def on_node(screen: Screen, node: Node, command: list[str], *, check: bool = True) -> None:
    """Run a command on the node over ssh and show it."""
    screen.on_node(node.name, node.run(command, check=check), command)


if __name__ == "__main__":
    sys.exit(main())
