"""The whole path on booted nodes: this checkout's command line, real ssh, apt, systemd, containerd and runc."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.machine.folders import cache_dir
from lab.machine.lock import locked
from lab.nodes import NodeSpec, Site
from tasks.environment import uv_path
from tasks.progress import Progress
from tests.ansible_modules import shared_modules
from tests.worker import of_all_workers, of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node

ROOT = Path(__file__).parents[2]
VERSION = "550.163.01"
OLD_VERSION = "535.309.01"  # the one that a Debian 12 node can have
TIMEOUT_S = 300
RELEASE_S = 600
_OF_A_CHECKOUT = frozenset({"PYTHONPATH", "VIRTUAL_ENV", "GRAPNEL_PAYLOAD", "ANSIBLE_COLLECTIONS_PATH"})

# What a plan must leave as it is: packages and their holds, configuration, releases, the units that run.
FINGERPRINT = """
dpkg-query -W; apt-mark showhold
find /etc /usr/lib/grapnel /usr/lib/systemd -xdev ! -path '*/mtab' -printf '%p %T@ %s %m\\n' 2>/dev/null | sort
systemctl list-units --type=service --state=running --no-legend --plain | cut -d' ' -f1 | grep -v -E 'session|user@'
systemctl show -p ExecMainStartTimestampMonotonic --value containerd grapnel-node 2>/dev/null
"""


@dataclass(frozen=True)
class Controller:
    """An operator's folder with a declaration and an inventory, and the commands run in it.

    ``programs`` is where an installed release has its commands; without it, they are this checkout's.
    """

    folder: Path
    timeout_s: float = field(default=TIMEOUT_S, kw_only=True)
    programs: Path | None = field(default=None, kw_only=True)

    def declare(self, version: str = VERSION) -> None:
        """Write the declaration; the module is the lab's."""
        driver = f'{{version: "{version}", kernelModule: none}}'  # the lab provides the module
        text = f"apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\nspec:\n  driver: {driver}\n"
        self.folder.joinpath("grapnel.yaml").write_text(text)

    def environment(self) -> dict[str, str]:
        """Return the environment of a person who has no kubeconfig."""
        path = f"{self.programs or Path(sys.executable).parent}:{os.environ['PATH']}"
        nobody = {"HOME": str(self.folder), "KUBECONFIG": ""}
        own = {"PATH": path, "NO_COLOR": "1", "COLUMNS": "140", "XDG_STATE_HOME": str(self.folder / "state")}
        if self.programs is None:
            return {**os.environ, **nobody, **own, "GRAPNEL_PAYLOAD": str(ROOT / "dist" / "payload")}
        others = {name: value for name, value in os.environ.items() if name not in _OF_A_CHECKOUT}
        return {**others, **nobody, **own}

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder to its end."""
        with shared_modules(self.folder / ".cache"):
            return subprocess.run(
                argv,
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.timeout_s,
                check=False,
            )

    def grapnel(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run ``grapnel`` on the inventory of the folder."""
        return self.run("grapnel", argv[0], "-i", "inventory.yaml", *argv[1:])

    def call(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a verb that changes machines which are in no cluster."""
        return self.grapnel(verb, "--yes", "--no-cluster", *words)

    def plan_items(self, node: str, *words: str) -> list[dict[str, str]]:
        """Return the items that ``grapnel plan --json`` has for a node."""
        done = self.grapnel("plan", "--json", node, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        plans = {plan["node"]: plan for plan in json.loads(done.stdout)["plans"]}
        items: list[dict[str, str]] = plans[node]["items"]
        return items

    def converge(self, node: str) -> None:
        """Apply, and hold it to an empty plan."""
        done = self.grapnel("apply", "--yes", node)
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.plan_items(node) == []

    def converge_as_planned(self, node: str) -> None:
        """Apply; require as many reported changes as were planned, and an empty plan afterwards."""
        planned = self.plan_items(node)
        done = self.grapnel("apply", "--yes", "--json", node)
        assert done.returncode == 0, done.stdout + done.stderr
        (result,) = json.loads(done.stdout)["nodes"]
        assert result["changes"] == len(planned), f"{done.stdout}\n{planned}"
        assert self.plan_items(node) == []


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A site of the tests' own, gone before and after."""
    made = Site(of_this_worker("journey"))
    made.destroy()
    yield made
    made.destroy()


@pytest.fixture
def controller(site: Site, tmp_path: Path) -> Controller:
    """An operator's folder whose inventory is the site's."""
    made = Controller(tmp_path)
    made.declare()
    tmp_path.joinpath("inventory.yaml").symlink_to(site.inventory_path)
    return made


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release of this checkout, which the first worker that asks for it makes for all of them."""
    folder = of_all_workers(tmp_path_factory) / "release"
    with locked(folder.with_suffix(".lock"), wait_s=RELEASE_S):
        if not folder.exists():  # it is there whole or not at all
            argv = [sys.executable, "-P", "-m", "tasks.release", "--output", str(folder)]
            subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True)
    return folder


@pytest.fixture(scope="session")
def installed(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which ``uv tool install`` of the release's wheel puts grapnel's commands, and none of Ansible's.

    The other packages are those that the release was tested with, out of uv's cache. Where nothing but the checkout's
    environment has filled that, what they need is not in it yet: it is asked for once.
    """
    home = tmp_path_factory.mktemp("installed")
    uv = str(uv_path(Progress(log_dir=cache_dir() / "logs")))
    places = {"UV_TOOL_DIR": str(home / "tools"), "UV_TOOL_BIN_DIR": str(home / "bin")}
    pinned = ["--constraints", str(release / "constraints.txt")]
    words = ["--quiet", "--python", sys.executable, *pinned, str(next(release.glob("*.whl")))]
    install = [uv, "tool", "install", *words]
    if subprocess.run([*install, "--offline"], check=False, cwd=home, env={**os.environ, **places}).returncode:
        subprocess.run(install, check=True, cwd=home, env={**os.environ, **places})
    subprocess.run([uv, "pip", "check", "--python", str(home / "tools/grapnel/bin/python")], check=True, cwd=home)
    return home / "bin"


@pytest.fixture(scope="session")
def gpu_node(site: Site, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A Debian 13 node that ``grapnel apply`` of an installed release has brought to its declaration."""
    node = site.up(NodeSpec("n1", suite="trixie", gpus=4, driver_module=VERSION))
    folder = tmp_path_factory.mktemp("controller")
    folder.joinpath("inventory.yaml").symlink_to(site.inventory_path)
    controller = Controller(folder, programs=installed)
    controller.declare()
    controller.converge_as_planned("n1")
    return node


@pytest.fixture(scope="module")
def node(site: Site, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A Debian 13 node with the NAME of the file: its kernel has the older module, and it has no driver's packages."""
    name = request.module.NAME
    yield site.up(NodeSpec(name, suite="trixie", gpus=2, driver_module=OLD_VERSION))
    site.remove(name)


def fingerprint(node: Node) -> str:
    """Return what a command that changes nothing must leave as it is."""
    return node.run(["sh", "-c", FINGERPRINT], check=False).stdout
