"""A driver upgrade by `grapnel apply` on machines that are in no cluster."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.journey.conftest import OLD_VERSION, VERSION
from tests.journey.test_driver_swap import works_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lab.nodes import Node
    from tests.journey.conftest import Controller

pytestmark = pytest.mark.nodes

NAME = "upgrade"
APPLY = ["grapnel", "apply", "-i", "inventory.yaml", "--yes", "--no-cluster", NAME]


def until(lines: Iterable[str], words: str) -> Iterator[str]:
    """Yield lines up to the first one with these words."""
    for line in lines:
        yield line
        if words in line:
            return


def record(controller: Controller) -> dict[str, str]:
    (state_file,) = (controller.folder / "state" / "grapnel").glob("node-state-*.json")
    found: dict[str, str] = json.loads(state_file.read_text())["nodes"][NAME]["record"]
    return found


def test_work_is_waited_for_and_then_the_driver_is_exchanged(controller: Controller, node: Node) -> None:
    controller.declare(OLD_VERSION)
    done = controller.run(*APPLY)
    assert done.returncode == 0, done.stdout + done.stderr
    controller.declare(VERSION)
    node.install_module(VERSION)
    node.run(["systemd-run", "--unit=job", "--property=StandardInput=file:/dev/nvidia0", "sleep", "3600"])

    with subprocess.Popen(
        APPLY, cwd=controller.folder, env=controller.environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        seen = list(until(process.stdout, "waits: a GPU is held by sleep ("))
        node.run(["systemctl", "stop", "job.service"])
        output = "".join([*seen, *process.stdout])

    assert process.returncode == 0, output
    assert f"1.  {NAME}  {OLD_VERSION} → {VERSION}" in output
    assert "job.service" in seen[-1]
    assert f"{NAME}  done: in service again" in output
    assert works_with(node, VERSION)
    assert (record(controller)["phase"], record(controller)["target"]) == ("done", VERSION)
    again = controller.run(*APPLY)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "1 node: 1 unchanged" in again.stdout
