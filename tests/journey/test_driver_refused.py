"""GPUs that cannot run what is declared: told by the plan of their node, with what would work instead.

Volta is the last generation without the open kernel module, and branch 580 its last. One run plans everything: several
names of the inventory stand for the same node, and each declares another driver.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lab import sources
from lab.nodes import NodeSpec
from lab.nodes.inventory import render_inventory
from tests.journey.conftest import OLD_VERSION, VERSION, Controller

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.nodes import Node, Site

pytestmark = pytest.mark.nodes

V100, T4 = "Tesla V100-SXM2-32GB", "Tesla T4"
NEWEST = "580.173.02"  # of Ubuntu's archive, in both flavours
BASE = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack"}
WITHOUT = {"runtime": {"enabled": False}, "plugin": {"enabled": False}}
# What each name declares, on a Debian 13 with two V100, and on an Ubuntu 24.04 with a T4 and a V100.
VOLTA = {
    "open": {"version": VERSION, "kernelModule": "open"},
    "auto": {"version": VERSION},
    "older-open": {"version": OLD_VERSION, "kernelModule": "open"},
    "too-new": {"branch": "590"},
}
MIXED = {
    "mixed-open": {"version": NEWEST, "source": "canonical", "kernelModule": "open"},
    "mixed-auto": {"version": NEWEST, "source": "canonical"},
    "mixed-new": {"branch": "590", "source": "canonical"},
}
OPEN_IS_TOO_NEW = (
    "flavour-not-supported",
    f"driver.kernelModule is open, which does not support {V100}",
    "declare kernelModule: proprietary or auto; branch 580 is the newest that works on this node",
)
BRANCH_IS_TOO_NEW = (
    "branch-too-new",
    f"driver 590 does not support {V100}: branch 580 is the last one that does",
    "declare driver.branch: '580', the newest that works on this node, or a version of it",
)


@dataclass(frozen=True)
class Planned:
    """The plans of all names, the exit code, and what a person is told of the driver that is derived."""

    plans: Mapping[str, dict[str, Any]]
    code: int
    explained: str

    def problems(self, name: str) -> list[tuple[str, str, str]]:
        return [(each["code"], each["message"], each["hint"]) for each in self.plans[name]["problems"]]

    def derived(self, name: str) -> dict[str, tuple[str, str]]:
        return {each["key"]: (each["value"], each["reason"]) for each in self.plans[name]["derived"]}

    def packages(self, name: str) -> set[str]:
        return {each["name"] for each in self.plans[name]["roles"]["driver"]["driver_change"]["packages"]}


@pytest.fixture(scope="module")
def nodes(site: Site) -> Iterator[tuple[Node, Node]]:
    """A node with GPUs before Turing alone, and one that has a newer one as well; neither has a driver."""
    volta = site.up(NodeSpec("volta", suite="trixie", gpus=2, model="v100-32gb", builder=True))
    system = {"suite": sources.BASE_SUITE, "system": "ubuntu2404"}
    mixed = site.up(NodeSpec("mixed", gpus=2, model="t4", last_model="v100-32gb", **system))
    yield volta, mixed
    for node in (volta, mixed):
        site.remove(node.name)


@pytest.fixture(scope="module")
def planned(site: Site, nodes: tuple[Node, Node], tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """Plan both nodes under all their names."""
    controller = Controller(tmp_path_factory.mktemp("controller"))
    volta, mixed = nodes
    addresses = dict.fromkeys(VOLTA, volta.address) | dict.fromkeys(MIXED, mixed.address)
    controller.folder.joinpath("inventory.yaml").write_text(render_inventory(addresses, site.access))
    controller.folder.joinpath("grapnel.yaml").write_text(json.dumps({**BASE, "spec": WITHOUT}))
    variables = controller.folder / "host_vars"
    variables.mkdir()
    for name, driver in (VOLTA | MIXED).items():
        stack = {"driver": {**driver, "companions": []}}
        variables.joinpath(f"{name}.json").write_text(json.dumps({"grapnel_stack": stack}))
    explained = controller.grapnel("check", "--explain", "mixed-auto")
    done = controller.grapnel("plan", "--json")
    assert explained.returncode == 0, explained.stdout + explained.stderr
    plans = {plan["node"]: plan for plan in json.loads(done.stdout)["plans"]}
    assert sorted(plans) == sorted(addresses), done.stdout + done.stderr
    return Planned(plans, done.returncode, " ".join(explained.stdout.split()))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("open", OPEN_IS_TOO_NEW, id="open module, no GPU runs it"),
        pytest.param("older-open", OPEN_IS_TOO_NEW, id="open module, which the branch does not have either"),
        pytest.param("mixed-open", OPEN_IS_TOO_NEW, id="open module, one of two GPUs runs it"),
        pytest.param("too-new", BRANCH_IS_TOO_NEW, id="branch that dropped the GPUs"),
        pytest.param("mixed-new", BRANCH_IS_TOO_NEW, id="branch that dropped one of two GPUs"),
    ],
)
def test_what_a_gpu_cannot_run_is_refused_with_what_would_work(
    planned: Planned, name: str, problem: tuple[str, str, str]
) -> None:
    assert planned.code == 1
    assert planned.problems(name) == [problem]
    assert planned.plans[name]["items"] == []


@pytest.mark.parametrize(
    ("name", "package", "other"),
    [
        pytest.param("auto", "nvidia-kernel-dkms", "nvidia-open-kernel-dkms", id="all GPUs before Turing"),
        pytest.param(
            "mixed-auto",
            "linux-modules-nvidia-580-server-{kernel}",
            "linux-modules-nvidia-580-server-open-{kernel}",
            id="one of two GPUs before Turing",
        ),
    ],
)
def test_a_gpu_before_turing_gets_the_proprietary_module(
    planned: Planned, nodes: tuple[Node, Node], name: str, package: str, other: str
) -> None:
    kernel = nodes[name in MIXED].kernel_release
    found = planned.packages(name)

    assert planned.problems(name) == []
    assert planned.derived(name)["driver.kernelModule"] == ("proprietary", f"{V100} needs the proprietary module")
    assert package.format(kernel=kernel) in found
    assert other.format(kernel=kernel) not in found


def test_what_a_declaration_leaves_open_is_explained_before_any_node_is_asked(planned: Planned) -> None:
    assert "from the node's GPUs: open, as is NVIDIA's default from branch 560 on" in planned.explained
    assert "proprietary where one is older than Turing" in planned.explained
