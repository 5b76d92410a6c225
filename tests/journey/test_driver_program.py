"""The program on the node with real apt and systemd: it swaps, goes back by itself, survives a power cut, removes."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lab.nodes import NodeSpec
from provision.planning.driver_change import ChangedFile, DriverChange, ModuleTarget, PackageVersion, change_id
from provision.planning.supply.payload.archive import write_archive
from provision.planning.supply.payload.sources import find_sources
from tests.journey.conftest import OLD_VERSION, ROOT, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site

pytestmark = pytest.mark.nodes

NAME = "program"
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
REVISIONS = {OLD_VERSION: f"{OLD_VERSION}-0+deb12u1", VERSION: f"{VERSION}-2"}
PACKAGES = (
    "libcuda1",
    "libnvidia-ml1",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler1",
    "nvidia-alternative",
    "nvidia-legacy-check",
    "nvidia-smi",
)
SETTINGS = "/etc/modprobe.d/grapnel-test.conf"
TIMEOUT_S = 280


def make_change(version: str) -> DriverChange:
    """Return user space and loaded module of a version; the lab puts the module on the disk."""
    return DriverChange(
        version=version,
        flavour="none",
        manager="apt",
        packages=tuple(PackageVersion(name, REVISIONS[version]) for name in PACKAGES),
        files=(ChangedFile(SETTINGS, f"# {version}\n"),),
        module=ModuleTarget(version=version),
    )


@dataclass
class Machine:
    """A node with the program."""

    node: Node

    def call(self, *words: str, given: str | None = None) -> tuple[int, dict[str, Any]]:
        done = self.node.run([PROGRAM, *words], check=False, timeout_s=TIMEOUT_S, input_text=given)
        assert done.stdout, done.stderr
        return done.returncode, dict(json.loads(done.stdout))

    def stage(self, version: str) -> str:
        change = make_change(version)
        code, answer = self.call("stage", given=msgspec.json.encode(change).decode())
        assert (code, answer["complete"]) == (0, True), answer
        assert answer["id"] == change_id(change)
        return change_id(change)

    def swap(self, version: str) -> dict[str, Any]:
        """Swap to a staged version and return the record of the run."""
        _, status = self.call("swap", change_id(make_change(version)))
        return dict(status["run"])

    def assert_has(self, version: str) -> None:
        shown = self.node.run(["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n", *PACKAGES])
        held = self.node.run(["apt-mark", "showhold"]).stdout.split()
        assert sorted(shown.stdout.splitlines()) == [f"{name} {REVISIONS[version]} hi " for name in PACKAGES]
        assert held == sorted(PACKAGES)
        assert self.loaded() == version
        smi = self.node.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
        assert smi.stdout.split() == [version] * len(self.node.gpus)
        assert self.node.run(["cat", SETTINGS]).stdout == f"# {version}\n"

    def loaded(self) -> str:
        return self.node.run(["cat", "/sys/module/nvidia/version"], check=False).stdout.strip()


@pytest.fixture(scope="module")
def machine(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A Debian 13 node without a driver's packages, whose kernel has loaded the older module."""
    node = site.up(NodeSpec(NAME, suite="trixie", gpus=2, driver_module=OLD_VERSION))
    archive, _ = write_archive(tmp_path_factory.mktemp("driver"), "driver", find_sources(ROOT).driver_entries())
    home = node.root / str(Path(PROGRAM).parent).lstrip("/")
    home.mkdir(parents=True)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(home)], check=True)
    node.run(["apt-get", "-q", "update"])
    yield Machine(node)
    site.remove(NAME)


def test_a_driver_comes_changes_survives_and_goes(machine: Machine) -> None:
    first_installation(machine)
    upgrade(machine)
    failing_downgrade(machine)
    downgrade_with_a_power_cut(machine)
    way_back(machine)
    removal(machine)


def first_installation(machine: Machine) -> None:
    machine.stage(OLD_VERSION)
    record = machine.swap(OLD_VERSION)

    assert (record["state"], record["reason"], record["changed"]) == ("done", "", True)
    machine.assert_has(OLD_VERSION)


def upgrade(machine: Machine) -> None:
    machine.stage(VERSION)
    machine.node.install_module(VERSION)

    record = machine.swap(VERSION)
    again = machine.swap(VERSION)

    assert (record["state"], record["reason"]) == ("done", "")
    assert (again["state"], again["changed"], again["out_of_service_s"]) == ("done", False, 0)
    machine.assert_has(VERSION)
    print(f"out of service: {record['out_of_service_s']} s")  # noqa: T201 - for whoever measures


def failing_downgrade(machine: Machine) -> None:
    """Nobody has put the older module on the disk; then it is there, and the kernel refuses it."""
    node = machine.node
    machine.stage(OLD_VERSION)

    early = machine.swap(OLD_VERSION)
    machine.assert_has(VERSION)
    node.install_module(OLD_VERSION)
    node.run(["sh", "-c", "mkdir -p /run/gpusim/fail; echo 129 > /run/gpusim/fail/nvidia"])
    refused = machine.swap(OLD_VERSION)
    node.run(["rm", "-r", "/run/gpusim/fail"])
    node.install_module(VERSION)
    _, status = machine.call("back")

    assert early["state"] == "failed", early
    assert f"module-not-on-disk: kernel module {OLD_VERSION} is to be loaded, and {VERSION} is on" in early["reason"]
    assert refused["state"] == "quarantined", refused
    assert "Key was rejected by service" in refused["reason"]
    assert "there is no way back: kernel module" in refused["reason"]
    assert status["run"]["state"] == "done", status["run"]
    machine.assert_has(VERSION)


def downgrade_with_a_power_cut(machine: Machine) -> None:
    node, identifier = machine.node, change_id(make_change(OLD_VERSION))
    node.install_module(OLD_VERSION)
    node.run(["systemd-run", "--quiet", PROGRAM, "swap", identifier])
    wait_for_step(machine, "packages")
    node.cut()
    node.start()
    node.wait_ready()

    _, interrupted = machine.call("status")
    record = machine.swap(OLD_VERSION)

    assert (interrupted["run"]["state"], interrupted["active"]) == ("running", False)
    assert (record["state"], record["reason"]) == ("done", "")
    assert record["run"] == interrupted["run"]["run"]
    machine.assert_has(OLD_VERSION)


def wait_for_step(machine: Machine, step: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        _, status = machine.call("status")
        is_running = status["active"] and status["run"]["state"] == "running"
        if is_running and any(each["step"] == step for each in status["steps"]):
            return
        time.sleep(0.05)
    raise AssertionError(f"no step {step}")


def way_back(machine: Machine) -> None:
    machine.node.install_module(VERSION)

    code, status = machine.call("back")

    assert (code, status["run"]["state"], status["run"]["verb"]) == (0, "done", "back"), status["run"]
    machine.assert_has(VERSION)


def removal(machine: Machine) -> None:
    code, status = machine.call("remove")

    left = machine.node.run(["dpkg-query", "-W", "-f", "${Package}\n", *PACKAGES], check=False).stdout
    assert (code, status["run"]["state"]) == (0, "done"), status["run"]
    assert left == ""
    assert machine.loaded() == ""
    assert machine.node.run(["apt-mark", "showhold"]).stdout == ""
    assert machine.node.run(["test", "-e", SETTINGS], check=False).returncode == 1
    assert (status["current"], status["staged"]) == (None, [])
