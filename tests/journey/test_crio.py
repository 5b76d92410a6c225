"""CRI-O on a node that grapnel sets up and gives back: GPUs, edited files, an engine that does not come back."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from lab.cluster.node_files import furnish_crio, plan_crio
from lab.cri import ContainerSpec
from lab.cri.errors import CallError
from lab.images import reference
from lab.kubelet import Kubelet
from lab.nodes import Site
from lab.pods import CRIO, pods_on
from tests.journey.conftest import VERSION, Controller, fingerprint
from tests.journey.snapshot import take_snapshot
from tests.worker import of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node
    from lab.pods import Pods
    from tests.journey.snapshot import Snapshot

pytestmark = pytest.mark.nodes

DECLARATION = f"""\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{VERSION}", kernelModule: none}}
  runtime: {{engine: crio}}
"""
ADOPTING = DECLARATION.replace("engine: crio", "engine: crio, adopt: true")
RESOURCE = "nvidia.com/gpu"
FOLDER = "/etc/crio/crio.conf.d"
DROP_IN = f"{FOLDER}/99-nvidia.conf"
SITES = f"{FOLDER}/10-site.conf"
# What `nvidia-ctk runtime configure --runtime=crio` leaves: CRI-O reads it after grapnel's drop-in.
TOOLKITS = f"{FOLDER}/99-nvidia.toml"
WRAPPER, RUNC = "/usr/bin/nvidia-container-runtime", "/usr/lib/lab/within-limits/runc"
TOOLKIT = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{WRAPPER}"\nruntime_type = "oci"\n'
OVERRIDE = "etc/systemd/system/crio.service.d/refuse.conf"
REASON = "it does not like this file"
LOOK = ["sh", "-c", "ls /dev/nvidia* /usr/lib/x86_64-linux-gnu/libcuda* 2>&1; nvidia-smi -L"]


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """An operator's folder with a declaration for CRI-O, and a node that has nothing else."""
    site = Site(of_this_worker("crio"))
    site.destroy()
    try:
        site.up(plan_crio("n1", gpus=2, driver_module=VERSION), furnish_crio)
        folder = tmp_path_factory.mktemp("controller")
        folder.joinpath("grapnel.yaml").write_text(DECLARATION)
        folder.joinpath("inventory.yaml").symlink_to(site.inventory_path)
        yield Controller(folder)
    finally:
        site.destroy()


@pytest.fixture(scope="module")
def bare(controller: Controller) -> Node:  # noqa: ARG001 - it is up
    """The node."""
    return Site(of_this_worker("crio")).node("n1")


@pytest.fixture(scope="module")
def before(bare: Node) -> Snapshot:
    """What the node was like before grapnel; a kubelet has made its folder."""
    bare.run(["mkdir", "-p", "/var/lib/kubelet/device-plugins"])
    return take_snapshot(bare)


@pytest.fixture(scope="module")
def node(controller: Controller, bare: Node, before: Snapshot) -> Node:
    """The node after ``grapnel apply``, as it stays until the last test removes it."""
    controller.converge("n1")
    assert DROP_IN in before.difference(take_snapshot(bare))
    return bare


@pytest.fixture(scope="module")
def pods(node: Node) -> Iterator[Pods]:
    """A client of CRI-O."""
    with pods_on(node, CRIO) as made:
        made.load_images(["pause", "gpu-shell", "greedy"])
        yield made


def state(node: Node) -> str:
    return node.run(["systemctl", "is-active", "crio"], check=False).stdout.strip()


def handler(node: Node) -> dict[str, Any]:
    """Return the handler with which CRI-O runs."""
    running = tomllib.loads(node.run(["crio", "status", "config"]).stdout)
    found: dict[str, Any] = running["crio"]["runtime"]["runtimes"]["nvidia"]
    return found


def edit(node: Node) -> str:
    """Have somebody edit our drop-in; return what it says then."""
    place = node.root / DROP_IN.lstrip("/")
    text = place.read_text().replace("runtime_root", 'container_min_memory = "14MiB"\nruntime_root', 1)
    assert "14MiB" in text
    place.write_text(text)
    return text


def kept(node: Node) -> list[str]:
    """Return the edited drop-ins that were kept, and take them away."""
    found = sorted(node.root.joinpath("etc/crio").glob("99-nvidia.conf.edited-*"))
    texts = [path.read_text() for path in found]
    for path in found:
        path.unlink()
    return texts


def test_a_container_sees_the_gpu_that_it_was_given_and_others_see_none(node: Node, pods: Pods) -> None:
    given, other = (gpu.uuid for gpu in node.gpus)
    with Kubelet(node.root / "var/lib/kubelet") as kubelet:
        kubelet.wait_for_devices(RESOURCE, 2, timeout_s=30)
        assignment = kubelet.allocate(RESOURCE, 1, "one", device_ids=[given])

        finished = pods.run(ContainerSpec(image=reference("gpu-shell"), command=LOOK), assignment=assignment)
        neighbours = [
            pods.run(ContainerSpec(image=reference("greedy"), command=LOOK), handler=handler)
            for handler in ("nvidia", "")
        ]

    assert (given in finished.log, other in finished.log) == (True, False), finished.log
    for neighbour in neighbours:
        assert "GPU-" not in neighbour.log
        assert neighbour.log.count("No such file") == 2, neighbour.log


def test_an_edited_drop_in_is_left_alone_until_somebody_says_to_overwrite_it(
    node: Node, controller: Controller
) -> None:
    place = node.root / DROP_IN.lstrip("/")
    ours = place.read_text()
    edited = edit(node)
    before = fingerprint(node)

    refused = controller.grapnel("apply", "--yes")
    after = fingerprint(node)
    forced = controller.grapnel("apply", "--yes", "--force")

    words = " ".join(refused.stdout.split())
    assert refused.returncode == 1, words
    assert f"{DROP_IN} on n1 was edited after grapnel wrote it" in words
    assert "container_min_memory is added" in words
    assert after == before
    assert forced.returncode == 0, forced.stdout + forced.stderr
    assert (kept(node), place.read_text(), state(node)) == ([edited], ours, "active")


def test_a_site_file_that_crio_does_not_parse_is_told_and_nothing_is_touched(
    node: Node, controller: Controller
) -> None:
    broken = node.root / FOLDER.lstrip("/") / "20-broken.conf"
    broken.write_text("[crio.runtime\n")
    before = fingerprint(node)

    refused = controller.grapnel("apply", "--yes")
    after = fingerprint(node)
    broken.unlink()

    assert refused.returncode == 1
    assert f"{FOLDER}/20-broken.conf" in " ".join(refused.stdout.split())
    assert after == before


def test_a_crio_that_does_not_come_back_gets_its_files_back_and_is_quoted(node: Node, controller: Controller) -> None:
    drop_in, override = node.root / DROP_IN.lstrip("/"), node.root / OVERRIDE
    drop_in.unlink()
    node.run(["systemctl", "restart", "crio"])
    override.parent.mkdir()
    refuse = f'test ! -e {DROP_IN} || {{ echo "{REASON}"; exit 1; }}'
    override.write_text(f"[Service]\nExecStartPre=/bin/sh -c '{refuse}'\nRestart=no\n")
    node.run(["systemctl", "daemon-reload"])

    failed = controller.grapnel("apply", "--yes")
    still_runs, was_put_back = state(node), not drop_in.exists()
    override.unlink()
    override.parent.rmdir()
    node.run(["systemctl", "daemon-reload"])

    words = " ".join(failed.stdout.split())
    assert failed.returncode == 1, words
    assert REASON in words
    assert "the files were put back, and crio.service works with them" in words
    assert (still_runs, was_put_back) == ("active", True)
    controller.converge("n1")


def test_remove_gives_the_node_back_although_crio_was_configured_otherwise_meanwhile(
    node: Node, controller: Controller, before: Snapshot, pods: Pods
) -> None:
    node.run(["sh", "-c", f"printf '\\n[crio.metrics]\\nenable_metrics = false\\n' >> {SITES}"])
    node.run(["sh", "-c", f"printf '[crio.runtime]\\npids_limit = 100\\n' > {FOLDER}/99-z.conf"])
    controller.converge("n1")  # a handler that is made of the site's own may have to be written again
    edited = edit(node)

    done = controller.call("remove")

    assert done.returncode == 0, done.stdout + done.stderr
    kept = "/etc/crio/99-nvidia.conf.saved"  # CRI-O reads every file beside the others
    assert node.run(["cat", kept]).stdout == edited
    node.run(["rm", kept])
    assert set(before.difference(take_snapshot(node))) == {SITES, f"{FOLDER}/99-z.conf"}
    assert state(node) == "active"
    shell = ContainerSpec(image=reference("gpu-shell"), command=["echo", "works"])
    assert pods.run(shell, handler="").log == "works\n"
    with pytest.raises(CallError, match="failed to find runtime handler nvidia"):
        pods.run(shell)


def test_the_toolkits_handler_is_taken_over_and_given_back(node: Node, controller: Controller) -> None:
    program = node.root / WRAPPER.lstrip("/")
    program.write_text(f'#!/bin/sh\nexec {RUNC} "$@"\n')
    program.chmod(0o755)
    node.root.joinpath(TOOLKITS.lstrip("/")).write_text(TOOLKIT)
    node.run(["systemctl", "restart", "crio"])
    there = node.run(["ls", FOLDER]).stdout

    refused = controller.grapnel("apply", "--yes")
    controller.folder.joinpath("grapnel.yaml").write_text(ADOPTING)
    controller.converge("n1")
    ours = handler(node)
    done = controller.call("remove")

    assert refused.returncode == 1
    assert f"the runtime handler 'nvidia' is already in {TOOLKITS}" in " ".join(refused.stdout.split())
    assert (ours["runtime_path"], ours["default_annotations"]) == (RUNC, {"grapnel.dev/handler": "nvidia"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert handler(node)["runtime_path"] == WRAPPER
    assert (node.run(["cat", TOOLKITS]).stdout, node.run(["ls", FOLDER]).stdout) == (TOOLKIT, there)
