"""What nodes run is loaded by every Python that may start it there, as far as this machine has one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import h2
import pytest

from lab.machine.pythons import MINORS, find_python

ROOT = Path(__file__).parents[3]
COLLECTIONS = ROOT / "playbooks/collections"
OF_NODES = "ansible_collections/grapnel/node/plugins"  # modules, and what they share with the driver program
LOAD = """
import importlib, json, pathlib, sys
sys.path[:0], failed, loaded = json.loads(sys.argv[1]), [], 0
for root, folder in json.loads(sys.argv[2]):
    for path in sorted(pathlib.Path(root, folder).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        if path.stem not in ("__main__", "launcher"):
            try:
                importlib.import_module(name)
                loaded += 1
            except Exception as error:
                failed.append(f"{name}: {error!r}")
print(json.dumps([loaded, failed]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("minor", MINORS, ids="3.{}".format)
def test_every_module_is_loaded_by_each_python_that_may_start_it(minor: int) -> None:
    """Hook, driver program and Ansible's modules from 3.9 on, the node daemon from 3.10 on."""
    python = find_python(minor) or pytest.skip(f"this machine has no Python 3.{minor}")
    parts = [
        (str(ROOT), "runtime_hook"),
        *((str(COLLECTIONS), f"{OF_NODES}/{each}") for each in ("modules", "module_utils")),
    ]
    if minor >= 10:
        parts.append((str(ROOT), "plugin"))
    libraries = str(Path(h2.__file__).parents[1])  # of the daemon; modules have Ansible's
    places = [str(ROOT), str(COLLECTIONS), libraries]

    done = subprocess.run(
        [python, "-ISB", "-c", LOAD, json.dumps(places), json.dumps(parts)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    loaded, failed = json.loads(done.stdout)
    assert failed == []
    assert loaded > 250
