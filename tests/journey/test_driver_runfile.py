"""A driver of an installer file on a Debian node: it comes, gives way to the distribution's, comes back, and goes.

The file is the lab's (``lab.runfile``), in NVIDIA's form and with small content; dpkg, apt, dkms, gcc and systemd are
real.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab import modules
from lab.nodes import NodeSpec, Site
from lab.runfile import SmallDriver
from lab.sources.content import BUILDS
from tests.journey.conftest import VERSION, Controller
from tests.journey.test_driver_dkms import stage_item
from tests.journey.test_driver_swap import is_there
from tests.worker import of_this_worker

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]  # three driver changes with real packages

NAME = "runfile"
OF_FILE = "550.54.15"  # no package source of the node has it
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
STAGED = "/var/lib/grapnel/driver"
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{{driver}}}
  runtime: {{enabled: false}}
  plugin: {{enabled: false}}
"""
# No initramfs, and few of the kernel's own modules: packing and indexing them would take longer than the changes. By
# one that is left, dkms knows how modules are compressed.
TRIM = """
rm -f /boot/initrd.img-*
find /usr/lib/modules/"$(uname -r)"/kernel -name '*.ko*' ! -path '*/kernel/lib/*' -delete
depmod -a
"""
STATE = """
apt-mark showhold
dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n' | grep -E 'nvidia|libcuda'
find /etc/apt /etc/modprobe.d /etc/modules-load.d /etc/dkms /etc/OpenCL -type f -exec sha256sum {} + 2>/dev/null | sort
dkms status
find /usr/lib/modules /var/lib/dkms /usr/src /usr/lib/firmware /usr/lib/modprobe.d -name '*nvidia*' | sort
getent passwd nvidia-persistenced
ls /sys/module
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site of this file's own."""
    made = Site(of_this_worker("runfile"))
    made.destroy()
    yield made
    made.destroy()


@pytest.fixture
def node(site: Site) -> Node:
    """A node with kernel, headers and dkms, and nothing of a driver."""
    made = site.up(NodeSpec(NAME, suite="trixie", gpus=2, builder=True))
    made.run(["sh", "-e", "-c", TRIM])
    return made


@pytest.fixture
def operator(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tmp_path.joinpath("inventory.yaml").symlink_to(site.inventory_path)
    return Controller(tmp_path, timeout_s=600)


def declare(operator: Controller, driver: str) -> None:
    operator.folder.joinpath("grapnel.yaml").write_text(DECLARATION.format(driver=driver))


def call(operator: Controller, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    done = operator.grapnel(verb, "--yes", "--no-cluster", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def say(node: Node, script: str) -> str:
    return node.run(["sh", "-c", script], check=False).stdout.strip()


def packages(node: Node) -> dict[str, str]:
    shown = say(node, "dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\\n' | grep -E 'nvidia|libcuda'")
    rows = [line.split("|") for line in shown.splitlines()]
    return {name: version for status, name, version in rows if status[1] == "i"}


def assert_has_the_file_s(node: Node, version: str) -> None:
    """Hold the node to the packages of the file alone, with its module built and loaded, and its daemon running."""
    names = ("nvidia-runfile", "nvidia-runfile-dkms", "nvidia-runfile-persistenced")
    assert packages(node) == dict.fromkeys(names, version)
    assert set(say(node, "apt-mark showhold").split()) == set(names)
    assert say(node, "cat /sys/module/nvidia/version") == OF_FILE
    digest = version.rpartition("+r")[2]
    built = f"nvidia-runfile-{digest}/{OF_FILE}, {node.kernel_release}, x86_64: installed"
    assert say(node, "dkms status") == built
    listed = say(node, "nvidia-smi -L")
    assert all(gpu.uuid in listed for gpu in node.gpus), listed
    assert say(node, "systemctl is-active nvidia-persistenced") == "active"
    assert say(node, "stat -c %a /usr/bin/nvidia-modprobe") == "4755"
    assert say(node, f"readlink {LIBRARIES}/libcuda.so.1") == f"libcuda.so.{OF_FILE}"
    assert is_there(node, f"/usr/lib/firmware/nvidia/{OF_FILE}/gsp_ga10x.bin")
    assert not is_there(node, "/usr/bin/nvidia-settings")


@pytest.mark.long
def test_a_driver_of_an_installer_file_is_a_driver_of_packages(
    operator: Controller, node: Node, tmp_path: Path
) -> None:
    before = say(node, STATE)
    file = tmp_path / f"NVIDIA-Linux-x86_64-{OF_FILE}.run"
    driver = SmallDriver(OF_FILE)
    driver.files[f"libnvidia-ml.so.{OF_FILE}"] = node.nvml_library.read_bytes()
    digest = driver.write(file)
    version = f"{OF_FILE}-1+r{digest[:8]}"

    declare(operator, f'source: runfile, version: "{OF_FILE}", runfile: {{path: {file}, sha256: "{digest}"}}')
    call(operator, "apply")
    assert_has_the_file_s(node, version)
    assert len(say(node, f"cat {BUILDS}").splitlines()) == 1  # while it was staged, and not again
    assert operator.plan_items(NAME) == []

    file.unlink()  # what was made of it is on the node
    declare(operator, f'version: "{VERSION}", companions: []')
    (plan,) = operator_plan(operator)
    archive = modules.archive(VERSION, "proprietary", node.kernel_release)
    modules.hand_over(node, stage_item(plan), archive)
    call(operator, "apply")
    there = packages(node)
    assert not [name for name in there if name.startswith("nvidia-runfile")]
    assert there["libcuda1"] == there["nvidia-kernel-dkms"] == "550.163.01-2"
    assert say(node, "cat /sys/module/nvidia/version") == VERSION

    call(operator, "rollback", NAME)
    assert_has_the_file_s(node, version)
    assert len(say(node, f"cat {BUILDS}").splitlines()) == 1

    call(operator, "remove", "--driver", NAME)
    assert say(node, STATE) == before
    assert not is_there(node, STAGED)


def operator_plan(operator: Controller) -> list[dict[str, Any]]:
    """Return the plans of all nodes."""
    done = operator.grapnel("plan", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    plans: list[dict[str, Any]] = json.loads(done.stdout)["plans"]
    return plans
