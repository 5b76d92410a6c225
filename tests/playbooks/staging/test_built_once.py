"""Booted nodes of one kind: two compile the module with real dkms, to the same bytes; the third gets it and has no gcc.

Under the command line, and with a declared builder under plain ansible-playbook: there with the tasks of ``site.yml``,
except that a plan of the small driver, which no catalogue knows, stands in for what `plan` would say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from lab.nodes import NodeSpec, Site
from provision.apply.context import ApplyContext
from provision.apply.declarations import Declarations
from provision.apply.playbooks import Playbooks
from provision.apply.runner import AnsibleRunner
from provision.cli.change.stage import stage_fleet
from provision.cli.session.scope import Scope
from provision.cluster import LocalCluster
from provision.planning.driver_change import DriverChange, change_id
from provision.planning.node_plan import Action, Disruption, DriverVariables, Item, NodePlan, Role, Roles
from provision.planning.supply.builds.shelf import Shelf
from provision.planning.supply.payload.store import load_payload
from tests.playbooks.preparing import kept_archives, prepare_driver
from tests.playbooks.staging.small_driver import HOME, NEW, OLD, Staging
from tests.provision.samples import make_stack
from tests.worker import of_this_worker

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from provision.declaration.fleet.facts.node import NodeFacts

pytestmark = pytest.mark.nodes

ROOT = Path(__file__).parents[3]
NODES = ("n1", "n2", "n3")
# All that could compile: what stays of it on the node are dangling links and folders.
NO_COMPILER = "rm -f /usr/bin/*gcc* /usr/bin/*cpp* /usr/bin/cc /usr/libexec/gcc/*/*/cc1 && ! command -v gcc"


def _site() -> Site:
    return Site(of_this_worker("built-once"))


@pytest.fixture(scope="module")
def nodes() -> Iterator[dict[str, Staging]]:
    site = _site()
    site.destroy()
    try:
        made = {name: Staging(site.up(NodeSpec(name, gpus=1, builder=True))) for name in NODES}
        made["n3"].node.run(["sh", "-ec", NO_COMPILER])
        yield made
    finally:
        site.destroy()


def plan_small_driver(change: DriverChange) -> NodePlan:
    """Plan the small driver, which no catalogue knows, as the planner does a real one."""
    driver = load_payload(ROOT / "dist" / "payload").driver

    def plan(node: str, facts: NodeFacts, _cancel: threading.Event) -> NodePlan:
        is_staged = change_id(change) in {one.id for one in facts.driver.staged if one.complete}
        is_installed = facts.installed_digest("driver") == driver.digest
        variables = DriverVariables(
            driver_version=change.version,
            driver_archive="" if is_installed else driver.path,
            driver_digest="" if is_installed else driver.digest,
            driver_change=change,
            driver_change_id=change_id(change),
            driver_stage=not is_staged,
            driver_swap=is_staged,
        )
        item = Item(
            role=Role.DRIVER,
            action=Action.INSTALL,
            target="driver",
            reason="declared",
            disruption=Disruption.DRAIN,
            deferred=not is_staged,
        )
        return NodePlan(node=node, items=(item,), roles=Roles(driver=variables))

    return plan  # type: ignore[return-value] # a planner


def test_the_third_node_gets_what_two_have_built_alike_and_compiles_nothing(
    nodes: dict[str, Staging], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = nodes["n1"]
    change = msgspec.json.decode(first.change(NEW), type=DriverChange)
    stacks = {name: make_stack(driver={"version": NEW}) for name in NODES}
    site = _site()
    context = ApplyContext(
        runner=AnsibleRunner(ROOT / "playbooks"),
        plan=plan_small_driver(change),
        playbooks=Playbooks(collection=ROOT / "playbooks", inventory=(str(site.inventory_path),)),
        declarations=Declarations(stacks),
        shelf=Shelf(tmp_path / "shelf"),
        draw=tuple,
    )
    scope = Scope(stacks=stacks, cluster=LocalCluster(tmp_path / "state.json"))

    code = stage_fleet(context, scope, parallel=2)

    output = capsys.readouterr().out
    assert code == 0, output
    said = " ".join(output.split())
    kernel = first.node.kernel_release
    assert f"n1 builds driver {NEW} (proprietary) for kernel {kernel}, compared with that of n2, for n3" in said
    assert "module built by n1, n2" in said
    _require_built_for_others(nodes, change, list((tmp_path / "shelf").glob("*.tar.gz")), ("n1", "n2"))


def test_plain_ansible_playbook_has_it_built_by_a_declared_builder(nodes: dict[str, Staging], tmp_path: Path) -> None:
    first = nodes["n1"]
    change = msgspec.json.decode(first.change(OLD), type=DriverChange)

    driver = load_payload(ROOT / "dist" / "payload").driver

    inventory = _site().inventory_path.read_text()
    done = prepare_driver(tmp_path, inventory, change, archive=driver.path, digest=driver.digest, builder="n1")

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"n1 builds driver {OLD} (proprietary) for kernel {first.node.kernel_release}" in done.stdout
    _require_built_for_others(nodes, change, kept_archives(tmp_path), ("n1",))


def _require_built_for_others(
    nodes: dict[str, Staging], change: DriverChange, kept: list[Path], builders: tuple[str, ...]
) -> None:
    """Hold the builders to a build, and the third node to the module of one of them without any."""
    third = nodes["n3"]
    kernel = third.node.kernel_release
    costs = {name: _cost(staging, change) for name, staging in nodes.items()}
    assert all(costs[name]["build_s"] > 0 for name in builders)
    assert (costs["n3"]["build_s"], costs["n3"]["cpu_s"]) == (0, 0)
    place = f"{HOME}/staged/{change_id(change)}"
    handed = third.node.root / place.lstrip("/") / f"modules/{kernel}.tar.gz"
    assert handed.read_bytes() in [archive.read_bytes() for archive in kept]
    assert len(kept) <= len(builders)
    _require_dkms_takes(third, place, kernel, change.version)


def _cost(staging: Staging, change: DriverChange) -> dict[str, float]:
    path = staging.node.root / HOME.lstrip("/") / "staged" / change_id(change) / "cost.json"
    found: dict[str, float] = json.loads(path.read_text())
    return found


def _require_dkms_takes(staging: Staging, place: str, kernel: str, version: str) -> None:
    """Load the archive as a swap does: dkms takes the module for built, and modinfo finds it in the kernel's folder."""
    node = staging.node
    node.run(["dpkg-deb", "--extract", f"{place}/packages/nvidia-lab-dkms_{version}_amd64.deb", "/"])
    node.run(["dkms", "ldtarball", "--force", "--archive", f"{place}/modules/{kernel}.tar.gz"])
    name = ["-m", "nvidia-lab", "-v", version, "-k", kernel]
    assert f"nvidia-lab/{version}, {kernel}, x86_64: built" in node.run(["dkms", "status", *name]).stdout
    node.run(["dkms", "install", "--force", *name], timeout_s=240)
    assert node.run(["modinfo", "-k", kernel, "-F", "version", "nvidia"]).stdout.strip() == version
