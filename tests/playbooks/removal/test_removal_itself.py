"""The module of a removal, as a process, with real engines' files at their true places: it refuses and touches nothing.

``/etc`` and ``/var/lib`` of the module are below the test's own folder, in a mount namespace.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import golang
from lab.cri.engine import packages, unpack
from provision.planning.engines import docker
from provision.planning.engines.containerd import imports as containerd
from tests.playbooks.removal.test_still_named import MAIN_2, TABLE, V2, V3, give_containerd, give_docker

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

pytestmark = [pytest.mark.functional, pytest.mark.usefixtures("engine")]

ROOT = Path(__file__).parents[3]
MODULE = "ansible_collections.grapnel.node.plugins.modules.removal"
IN_NAMESPACE = 'mount --bind "$1/etc" /etc; mount --bind "$1/var/lib" /var/lib; shift; exec "$@"'
TIMEOUT_S = 60
REFUSED = 1


def beside(machine: Machine, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command that has the machine's configuration and state."""
    namespace = ["unshare", "--mount", "sh", "-ec", IN_NAMESPACE, "sh", str(machine.root)]
    return subprocess.run(
        [*namespace, *command],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/playbooks/collections"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def remove(machine: Machine, *, check: bool) -> tuple[int, dict[str, Any]]:
    place = machine.root / "arguments.json"
    arguments = {"parts": ["daemon", "runtime", "hook"], "_ansible_check_mode": check}
    place.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    done = beside(machine, sys.executable, "-m", MODULE, str(place))
    return done.returncode, json.loads(done.stdout)


def tree(machine: Machine) -> dict[str, str]:
    folders = (machine.root / "etc", machine.root / "var")
    return {str(path): path.read_text() for each in folders for path in sorted(each.rglob("*")) if path.is_file()}


def refuse(machine: Machine, words: str) -> None:
    """Try it both ways: the plan tells the problem, and the removal changes nothing."""
    before = tree(machine)
    status, planned = remove(machine, check=True)
    assert status == 0, planned
    assert [one for one in planned["removal"]["problems"] if one.startswith(words)], planned["removal"]
    assert {one["action"] for one in planned["removal"]["steps"]} >= {"restore"}, "what would be done is shown"
    status, refused = remove(machine, check=False)
    assert status == REFUSED
    assert refused["msg"].startswith(f"nothing was changed: {words}")
    assert tree(machine) == before


def test_dockers_default_runtime_refuses_the_removal_until_another_one_is_named(machine: Machine) -> None:
    give_docker(machine, '{\n  "bridge": "none"\n}\n')
    text = machine.read(docker.MAIN_PATH)
    machine.write(docker.MAIN_PATH, text.replace("{", '{\n  "default-runtime": "nvidia",', 1))
    refuse(machine, "/etc/docker/daemon.json:2 has 'nvidia' as default runtime")

    machine.write(docker.MAIN_PATH, text.replace("{", '{\n  "default-runtime": "runc",', 1))
    status, planned = remove(machine, check=True)

    assert (status, planned["removal"]["problems"]) == (0, [])


@pytest.mark.parametrize(
    ("suite", "main", "plugin"),
    [
        pytest.param("trixie", MAIN_2, V2, id="containerd 1.7"),
        pytest.param("2", "version = 3\n", V3, id="containerd 2"),
    ],
)
def test_containerds_default_runtime_refuses_what_containerd_itself_does_not_complain_of(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory, suite: str, main: str, plugin: str
) -> None:
    """The rehearsal found nothing: containerd reads such a configuration, and then starts without its CRI plugin."""
    folder = tmp_path_factory.mktemp("containerd")
    program = (golang.containerd() if suite == "2" else unpack(packages(suite), folder)) / "containerd"
    give_containerd(machine, main, "2.1.0" if suite == "2" else "1.7.24")
    text = machine.read(containerd.MAIN_PATH) + TABLE.format(plugin=plugin)
    machine.write(containerd.MAIN_PATH, text)
    place = f"{containerd.MAIN_PATH}:{len(text.splitlines())}"

    refuse(machine, f"{place} has 'nvidia' as default runtime")

    (machine.root / containerd.DROP_IN_PATH.lstrip("/")).unlink()
    read = beside(machine, program, "--config", containerd.MAIN_PATH, "config", "dump")
    assert read.returncode == 0, read.stderr
    assert "default_runtime_name = 'nvidia'" in read.stdout.replace('"', "'")
