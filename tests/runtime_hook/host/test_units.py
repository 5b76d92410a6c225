"""The units that keep the inventory, under a real systemd: what starts them, and what must not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.nodes import Node, NodeSpec, Site
from tests.runtime_hook.drivertree import MULTIARCH, DriverTree
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nodes

REPOSITORY = Path(__file__).parents[3]
UNITS = ("grapnel-inventory.path", "grapnel-inventory.service")
INVENTORY = "run/grapnel/inventory.json"
TIMEOUT_S = 20


@pytest.fixture(scope="module", params=["trixie", "bookworm"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Boot a node with a driver's module, the hook's release and its units, and without driver libraries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        site = Site(f"i{os.getpid()}")
        try:
            made = site.up(NodeSpec("n1", suite=request.param, gpus=2, driver_module="550.163.01"))
            install_hook(made)
            yield made
        finally:
            site.destroy()


def install_hook(node: Node) -> None:
    home = node.root / "usr/lib/grapnel/hook"
    shutil.copytree(REPOSITORY / "runtime_hook", home / "runtime_hook", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "runtime_hook/launcher.py", home / "grapnel-hook")
    (home / "grapnel-hook").chmod(0o755)
    for unit in UNITS:
        shutil.copy(REPOSITORY / "deploy/systemd" / unit, home)
        shell(node, f"ln -s /usr/lib/grapnel/hook/{unit} /etc/systemd/system/{unit}")
    shell(node, "systemctl daemon-reload; systemctl enable grapnel-inventory.service")
    shell(node, "systemctl enable --now grapnel-inventory.path")


def shell(node: Node, command: str) -> str:
    return node.run(["sh", "-c", command]).stdout.strip()


def runs(node: Node) -> int:
    lines = shell(node, "journalctl --unit grapnel-inventory.service --output cat --no-pager").splitlines()
    return sum(line.startswith("Finished") for line in lines)


def inventory(node: Node) -> dict[str, Any]:
    path = node.root / INVENTORY
    return dict(json.loads(path.read_text())) if path.exists() else {}


def is_watching(node: Node) -> bool:
    """Tell whether systemd watches: while the service runs, and until it has added its watch again, it does not."""
    return shell(node, "systemctl show --property SubState --value grapnel-inventory.path") == "waiting"


def test_the_inventory_follows_the_driver(node: Node, tmp_path: Path) -> None:
    shell(node, "systemctl start grapnel-inventory.service")
    assert inventory(node) == {}  # no driver, and no failed unit either
    assert shell(node, "systemctl --failed --no-legend") == ""

    wait_until(lambda: is_watching(node))
    (tmp_path / "objects").mkdir()
    driver = DriverTree(tmp_path / "host", tmp_path / "objects", layout="multiarch", with_nodes=False).build()
    for file in driver.folder.iterdir():
        shutil.copy(file, node.root / MULTIARCH, follow_symlinks=False)
    shell(node, "ldconfig")
    wait_until(lambda: inventory(node) != {})
    assert (inventory(node)["driver_version"], len(inventory(node)["devices"]["gpus"])) == (driver.version, 2)

    # What programs do all the time starts nothing.
    wait_until(lambda: is_watching(node))
    before = runs(node)
    shell(node, f"echo > /dev/null; touch /{MULTIARCH}/something /run/something; cat /etc/ld.so.cache > /dev/null")
    shell(node, "ldconfig")
    wait_until(lambda: runs(node) > before)  # a name in /run once made systemd forget what happened to the cache
    wait_until(lambda: is_watching(node))
    assert runs(node) <= before + 2  # ldconfig writes beside the cache, then renames

    node.reboot()
    assert shell(node, "systemctl is-active grapnel-inventory.path") == "active"
    wait_until(lambda: len(inventory(node).get("devices", {}).get("gpus", [])) == 2)
