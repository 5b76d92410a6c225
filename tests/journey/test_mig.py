"""GPUs are divided by MIG as declared, from the plan to what the daemon offers: another layout, a reboot, a refusal."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet
from lab.nodes import NodeSpec
from lab.nodes.mig import FOLDER, MAJOR, capabilities
from lab.nvml import state
from lab.nvml.machine import Process
from tests.journey.conftest import VERSION
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site
    from lab.nvml.machine import Machine, Mig
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

NAME = "divided"
PROGRAM = "/usr/lib/grapnel/node/grapnel-node"
NOT_AS_WANTED = 3
HALVES = {"3g.20gb": 1, "1g.5gb": 2}
LAYOUTS = {
    "slices": [HALVES, {"1g.5gb": 7}],
    "pairs": [HALVES, {"1g.5gb": 1, "2g.10gb": 3}],
    "impossible": [{"3g.40gb": 1}],  # a profile of GPUs that have twice the memory
}
TRAINER = "cp /usr/bin/sleep /run/trainer; exec 3</dev/nvidia1; exec /run/trainer infinity"


def declare(controller: Controller, layout: str) -> None:
    """Write a declaration; the third GPU is in no layout."""
    entries = {
        name: [{"devices": [gpu], "mig-enabled": True, "mig-devices": wanted} for gpu, wanted in enumerate(gpus)]
        for name, gpus in LAYOUTS.items()
    }
    stack = {
        "driver": {"version": VERSION, "kernelModule": "none"},
        "plugin": {"migStrategy": "mixed"},
        "mig": {"layout": layout, "config": {"version": "v1", "mig-configs": entries}},
    }
    document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": stack}
    controller.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))


def divisions(controller: Controller) -> list[tuple[str, str]]:
    """Return reason and disruption of the division in the plan."""
    items = controller.plan_items(NAME)
    return [(item["reason"], item["disruption"]) for item in items if item["action"] == "divide"]


def migs(node: Node, gpu: int) -> tuple[Mig, ...]:
    return state.read(node.nvml_library).gpus[gpu].migs


def profiles(node: Node, gpu: int) -> list[str]:
    return sorted(each.profile for each in migs(node, gpu))


def uuids(node: Node, gpu: int) -> list[str]:
    return sorted(each.uuid for each in migs(node, gpu))


def journal(node: Node) -> str:
    """Return what the daemon's unit has said since the boot."""
    return node.run(["journalctl", "-b", "-u", "grapnel-node", "-o", "cat", "--no-pager"]).stdout


def capability_nodes(gpu: int, mig: Mig) -> dict[str, str]:
    """Return the nodes by which a container gets a MIG device, with their numbers."""
    return {f"{FOLDER}/nvidia-cap{minor}": f"{MAJOR:x}:{minor:x}" for minor in capabilities(gpu, mig).values()}


def assert_offered(node: Node) -> None:
    """Have a kubelet hear what is offered: each MIG device by its profile, and the whole GPU."""
    devices = [(gpu, mig) for gpu in (0, 1) for mig in migs(node, gpu)]
    wanted = {"nvidia.com/gpu": [node.gpus[2].uuid]}
    for _, mig in devices:
        wanted.setdefault(f"nvidia.com/mig-{mig.profile}", []).append(mig.uuid)
    gpu, first = devices[0]
    with Kubelet(node.folder / "kubelet") as kubelet:
        offered = {name: kubelet.wait_for_devices(name, len(ids)) for name, ids in wanted.items()}
        given = kubelet.allocate(f"nvidia.com/mig-{first.profile}", 1, "a-pod", device_ids=[first.uuid]).response
    assert offered == {name: sorted(ids) for name, ids in wanted.items()}
    assert [each.host_path for each in given.devices if "caps" in each.host_path] == [*capability_nodes(gpu, first)]
    shown = node.run(["stat", "-c", "%n %t:%T", *(path for one in devices for path in capability_nodes(*one))]).stdout
    numbers = {path: number for one in devices for path, number in capability_nodes(*one).items()}
    assert dict(line.split() for line in shown.splitlines()) == numbers


@pytest.fixture(scope="module")
def node(site: Site) -> Iterator[Node]:
    yield site.up(NodeSpec(NAME, suite="trixie", gpus=3, driver_module=VERSION))
    site.remove(NAME)


def start_trainer(node: Node) -> None:
    """Have a process compute on the last MIG device of the second GPU."""
    node.run(["systemd-run", "--quiet", "--unit=trainer", "sh", "-c", TRAINER])
    pid = int(node.run(["systemctl", "show", "-p", "MainPID", "--value", "trainer"]).stdout)
    set_processes(node, (Process(pid, 1),))


def end_trainer(node: Node) -> None:
    set_processes(node, ())
    node.run(["systemctl", "stop", "trainer"])


def set_processes(node: Node, processes: tuple[Process, ...]) -> None:
    def change(machine: Machine) -> Machine:
        *others, last = machine.gpus[1].migs
        return machine.with_gpu(1, migs=(*others, replace(last, processes=processes)))

    state.update(node.nvml_library, change)


def waits_for(controller: Controller) -> str:
    """Return what the rollout says that it waits for."""
    found = [json.loads(path.read_text()) for path in controller.folder.glob("state/grapnel/rollout-progress-*.json")]
    return " ".join(one["reason"] for each in found for one in each.get("waiting", ()))


def test_gpus_are_divided_as_declared_and_stay_so(controller: Controller, node: Node, site: Site) -> None:
    refused_where_no_gpu_has_it(controller)
    divided_before_the_daemon_offers(controller, node)
    waits_while_in_use_and_done_afterwards(controller, node)
    restored_at_the_boot(controller, node, site)


def refused_where_no_gpu_has_it(controller: Controller) -> None:
    declare(controller, "impossible")

    done = controller.grapnel("plan", NAME)

    said = " ".join(done.stdout.split())
    assert done.returncode == 1, said
    assert f"mig layout impossible cannot be had by GPU 0 of {NAME}" in said
    assert "has no profile 3g.40gb (mig-layout-impossible)" in said
    assert "hint: choose another layout for the node, or give the entry a device-filter" in said


def divided_before_the_daemon_offers(controller: Controller, node: Node) -> None:
    declare(controller, "slices")
    assert divisions(controller) == [("how its GPUs are divided is not known yet", "none")]

    done = controller.call("apply", NAME)

    assert done.returncode == 0, done.stdout + done.stderr
    assert [profiles(node, gpu) for gpu in (0, 1, 2)] == [["1g.5gb", "1g.5gb", "3g.20gb"], ["1g.5gb"] * 7, []]
    assert "cut as wanted already" in journal(node).partition("Started grapnel-node")[0], "before the daemon began"
    assert_offered(node)
    before = node.run(["systemctl", "show", "-p", "ExecMainStartTimestampMonotonic", "grapnel-node"]).stdout
    assert controller.plan_items(NAME) == []
    again = controller.call("apply", NAME)
    assert again.returncode == 0, again.stdout + again.stderr
    after = node.run(["systemctl", "show", "-p", "ExecMainStartTimestampMonotonic", "grapnel-node"]).stdout
    assert (before, controller.plan_items(NAME)) == (after, [])


def waits_while_in_use_and_done_afterwards(controller: Controller, node: Node) -> None:
    declare(controller, "pairs")
    kept, former = uuids(node, 0), uuids(node, 1)
    start_trainer(node)
    ((reason, disruption),) = divisions(controller)
    assert reason.startswith("GPU 1 has 7 x 1g.5gb, and is to have 1 x 1g.5gb + 3 x 2g.10gb; a GPU is held by trainer")
    assert disruption == "drain"
    refused_by_the_program(node)

    with ThreadPoolExecutor(1) as pool:
        applied = pool.submit(controller.call, "apply", NAME)
        try:
            wait_until(lambda: "a GPU is held by trainer" in waits_for(controller), lambda: waits_for(controller))
            assert (uuids(node, 0), uuids(node, 1)) == (kept, former)
        finally:
            end_trainer(node)
        done = applied.result()

    assert done.returncode == 0, done.stdout + done.stderr
    assert (uuids(node, 0), profiles(node, 1)) == (kept, ["1g.5gb", "2g.10gb", "2g.10gb", "2g.10gb"])
    assert_offered(node)
    assert controller.plan_items(NAME) == []


def refused_by_the_program(node: Node) -> None:
    """Without the rollout's drain, the program itself leaves a device to the one who has it."""
    entry = {"devices": [1], "migEnabled": True, "migDevices": {"7g.40gb": 1}}
    layout = json.dumps({"version": 1, "layouts": [entry]})
    node.run(["tee", "/run/whole.json"], input_text=layout)

    done = node.run([PROGRAM, "mig", "apply", "--layout", "/run/whole.json"], check=False)

    assert (done.returncode, "(trainer)" in done.stdout) == (NOT_AS_WANTED, True), done.stdout + done.stderr


def restored_at_the_boot(controller: Controller, node: Node, site: Site) -> None:
    before = [profiles(node, gpu) for gpu in (0, 1, 2)]

    site.reboot(NAME)

    assert [profiles(node, gpu) for gpu in (0, 1, 2)] == before
    assert "create 3g.20gb" in journal(node).partition("Started grapnel-node")[0], "before the daemon began"
    assert_offered(node)
    assert controller.plan_items(NAME) == []
