"""Packages of an engine: which of them came with grapnel, and go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    PLACE,
    Packages,
    remember_packages,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import (
    RemovalError,
    install,
    not_installed,
    packages_to_come,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.plan import find_removal

from tests.playbooks.removal.node import (
    ALL,
    remove,
    teach_packages,
)

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine, Systemd


def test_packages_that_came_with_an_engine_go_with_its_data(machine: Machine, engine: Systemd) -> None:
    assert engine
    teach_packages(machine)
    machine.teach("groupdel docker")
    remember_packages(
        machine.host, "docker", Packages(("docker.io", "runc"), ("/var/lib/docker",), ("docker", "other"))
    )
    machine.write("/var/lib/docker/image")
    machine.write("/etc/group", "root:x:0:\nother:x:7:ada\ndocker:x:8:\n")
    shown = {(step.action, step.target) for step in find_removal(machine.host, ALL).steps}

    remove(machine)

    purged, deleted = (call for call in machine.calls if call.startswith(("groupdel", "env")))
    assert purged.endswith(" purge docker.io runc")
    assert deleted == "groupdel docker"
    assert shown >= {("purge", "runc"), ("remove", "/var/lib/docker"), ("remove", "group docker")}
    assert not (machine.root / "var/lib/docker").exists()
    assert not (machine.root / PLACE.lstrip("/")).exists()


@pytest.mark.parametrize(
    ("also", "kubelet", "why"),
    [
        pytest.param(
            "Remv somebodys-tool [1]\n", "not-found", "somebodys-tool would go with it", id="needed by others"
        ),
        pytest.param("", "loaded", "the node has a kubelet", id="a kubelet"),
    ],
)
def test_an_engine_that_is_needed_stays(machine: Machine, engine: Systemd, also: str, kubelet: str, why: str) -> None:
    assert engine
    teach_packages(machine, also=also, kubelet=kubelet)
    remember_packages(machine.host, "docker", Packages(("docker.io", "runc")))

    removal = find_removal(machine.host, ALL)

    assert any(why in note for note in removal.notes)
    assert [step.action for step in removal.steps] == ["forget"]


def test_an_engine_with_running_containers_is_refused(machine: Machine, engine: Systemd) -> None:
    assert engine
    teach_packages(machine)
    remember_packages(machine.host, "docker", Packages(("docker.io", "runc")))
    machine.write("/proc/12/comm", "containerd-shim\n")

    assert "end them first" in find_removal(machine.host, ALL).problems[0]


def test_packages_that_were_there_before_are_not_counted(machine: Machine) -> None:
    machine.teach(
        "apt-get --simulate", "Inst runc (1.1 Debian:13 [amd64])\nInst libc6 [2.40] (2.41 Debian:13 [amd64])\n"
    )
    assert packages_to_come(machine.host, ["containerd"]) == ["runc"]

    machine.teach("apt-get --simulate", return_code=100, stderr="E: Unable to locate package containerd")
    with pytest.raises(RemovalError, match="Unable to locate"):
        packages_to_come(machine.host, ["containerd"])


def test_only_what_is_not_installed_to_the_end_is_installed(machine: Machine) -> None:
    machine.teach("dpkg-query --show", "runc installed\ncontainerd half-configured\n")
    machine.teach("env DEBIAN_FRONTEND=noninteractive", "")

    wanted = not_installed(machine.host, ["runc", "containerd", "podman"])
    install(machine.host, wanted, 120)

    assert wanted == ["containerd", "podman"]
    assert machine.calls[-1].endswith(" install containerd podman")
    assert "--no-install-recommends -o DPkg::Lock::Timeout=120" in machine.calls[-1]

    machine.teach("env DEBIAN_FRONTEND=noninteractive", return_code=100, stderr="E: Could not get lock")
    with pytest.raises(RemovalError, match="apt cannot install podman: E: Could not get lock"):
        install(machine.host, ["podman"], 120)
