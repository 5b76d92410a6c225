"""An apply that is killed at any of its tasks, and applied again, leaves the node that an undisturbed one leaves.

`make test` kills it at a few tasks, spread over all; `make crashes` at every one (``CRASHES=all``, or their numbers).
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.nodes import NodeSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.timeout(7200 if os.environ.get("CRASHES") else 900),  # half a minute for each on an idle machine
]

CALLBACKS = Path(__file__).with_name("callback_plugins")
SKIPPED = " (skipped)"
SAMPLE = 2
# What an apply leaves behind: packages and holds, every file of grapnel's and of the engine, units that run. The driver
# inventory is made again whenever the driver's files change, and says when they did. The lock of a run that was killed
# is there until the next one that changes something, and keeps nobody off.
OUTCOME = """
dpkg-query -W -f '${Package} ${Version} ${Status}\\n'; apt-mark showhold
for each in /etc/grapnel /etc/containerd /etc/apt/preferences.d /etc/systemd/system /usr/lib/grapnel /run/grapnel; do
  find $each -type f -printf '%p %m %U ' -exec sh -c 'sha256sum <"$1"' - {} \\; -o -type l -printf '%p -> %l\\n'
done 2>/dev/null | grep -v -e __pycache__ -e '^/run/grapnel/\\(node/\\|inventory\\.json\\|run-lock\\)' | sort
systemctl is-active containerd grapnel-node
"""


def apply(controller: Controller, log: Path, *, kill_at: int = 0, after_s: float = 0.0) -> int:
    """Apply with a log of the tasks; returns the exit code, negative for a signal."""
    environment = controller.environment() | {
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_CALLBACKS_ENABLED": "kill_at_task",
        "KILL_LOG": str(log),
        "KILL_AT": str(kill_at),
        "KILL_AFTER_S": str(after_s),
    }
    command = ["grapnel", "apply", "-i", "inventory.yaml", "--yes", "k1"]
    done = subprocess.run(
        command, cwd=controller.folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    if not kill_at:
        assert done.returncode == 0, done.stdout + done.stderr
    return done.returncode


@pytest.fixture
def bare(site: Site) -> Iterator[Node]:
    yield boot(site)
    site.remove("k1")


def boot(site: Site) -> Node:
    return site.up(NodeSpec("k1", suite="trixie", gpus=1))


def outcome(node: Node) -> str:
    return node.run(["sh", "-c", OUTCOME], check=False).stdout


def chosen(tasks: list[str]) -> list[int]:
    """Return the numbers of the tasks to kill at: all that did something, or some of them."""
    done = [number for number, task in enumerate(tasks, start=1) if not task.endswith(SKIPPED)]
    if wanted := os.environ.get("CRASHES"):
        return done if wanted == "all" else [int(each) for each in wanted.split(",")]
    return done[len(done) // (2 * SAMPLE) :: len(done) // SAMPLE][:SAMPLE]


def test_an_apply_killed_at_a_task_comes_to_the_same_end(
    bare: Node, site: Site, controller: Controller, tmp_path: Path
) -> None:
    log = tmp_path / "tasks"
    apply(controller, log)
    expected, tasks = outcome(bare), log.read_text().splitlines()
    assert "grapnel-node" in expected
    differing: dict[str, list[str]] = {}
    for number in chosen(tasks):
        site.remove("k1")
        node = boot(site)
        log.unlink(missing_ok=True)

        code = apply(controller, log, kill_at=number, after_s=0.2 * (number % 2))
        assert code == -signal.SIGKILL, f"the apply was not killed at {tasks[number - 1]}"
        apply(controller, tmp_path / "second")

        changes = set(expected.splitlines()) ^ set(outcome(node).splitlines())
        changes |= {f"planned: {item['target']}" for item in controller.plan_items("k1")}
        if changes:
            differing[f"{number} {tasks[number - 1]}"] = sorted(changes)
    assert differing == {}
