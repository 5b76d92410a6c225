"""A driver upgrade by `grapnel apply` on a node of a real Slurm: drained, exchanged when its job has ended, resumed."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from lab.nodes import NodeSpec
from lab.slurm import SlurmMachine
from tests.journey.conftest import OLD_VERSION, VERSION
from tests.journey.test_driver_swap import works_with
from tests.journey.test_upgrade import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]  # two applies, and a job between them

NAME = "slurm1"
APPLY = ["grapnel", "apply", "-i", "inventory.yaml", "--yes", NAME]


@pytest.fixture
def node(site: Site) -> Iterator[Node]:
    yield site.up(NodeSpec(NAME, suite="trixie", gpus=2, driver_module=OLD_VERSION))
    site.remove(NAME)


@pytest.fixture
def slurm() -> Iterator[SlurmMachine]:
    with SlurmMachine("bookworm", {"gpu01": NAME}) as running:
        yield running


def declare(controller: Controller, slurm: SlurmMachine, version: str) -> None:
    controller.declare(version)
    path = controller.folder / "grapnel.yaml"
    document = yaml.safe_load(path.read_text())
    document["spec"]["scheduler"] = {"kind": "slurm", "slurm": {"command": list(slurm.prefix)}}
    path.write_text(yaml.safe_dump(document))


def test_a_job_is_waited_for_and_then_the_driver_is_exchanged(
    controller: Controller, node: Node, slurm: SlurmMachine
) -> None:
    declare(controller, slurm, OLD_VERSION)
    done = controller.run(*APPLY)
    assert done.returncode == 0, done.stdout + done.stderr
    declare(controller, slurm, VERSION)
    node.install_module(VERSION)
    job = slurm.submit("gpu01")

    with subprocess.Popen(
        APPLY, cwd=controller.folder, env=controller.environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        seen = list(until(process.stdout, "wait-for-jobs: "))
        seen += until(process.stdout, f"waits for job {job} of alice (")
        assert slurm.states("gpu01") >= {"MIXED", "DRAIN"}
        slurm.finish(job)
        seen += until(process.stdout, "resume: ")
        slurm.stop_node("gpu01")  # its slurmd is told of the other driver: that it starts again is waited for
        slurm.start_node("gpu01")
        output = "".join([*seen, *process.stdout])

    assert process.returncode == 0, output
    assert f"1.  {NAME}  {OLD_VERSION} → {VERSION}  waits for job {job} of alice" in output
    assert works_with(node, VERSION)
    slurm.wait_until(lambda: slurm.states("gpu01") == {"IDLE"}, "the node takes jobs again")
