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
    PackagePlan,
    RemovalError,
    absent_data,
    plan_packages,
    purge,
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


def test_folders_that_an_engine_makes_beside_a_sites_settings_go_where_they_are_empty(machine: Machine) -> None:
    """CRI-O makes two folders when it starts, also where its own folder was there before it."""
    machine.write("/etc/crio/crio.conf.d/10-site.conf")
    data = absent_data(machine.host, "crio")
    (machine.root / "etc/crio/auth").mkdir()
    machine.write("/etc/crio/policies/site.json")

    purge(machine.host, PackagePlan("crio", (), data))

    assert "/etc/crio" not in data
    assert not (machine.root / "etc/crio/auth").exists()
    assert (machine.root / "etc/crio/policies/site.json").exists()
    assert (machine.root / "etc/crio/crio.conf.d/10-site.conf").exists()


def test_folders_of_a_site_that_an_engines_folder_leads_to_stay(machine: Machine) -> None:
    """Where it made a folder of settings, there is a link of the site's since, to folders that are not the engine's."""
    (machine.root / "srv/policies/of-team-a").mkdir(parents=True)
    (machine.root / "etc/crio").mkdir(parents=True)
    (machine.root / "etc/crio/policies").symlink_to(machine.root / "srv/policies")

    purge(machine.host, PackagePlan("crio", (), ("/etc/crio/policies",)))

    assert (machine.root / "srv/policies/of-team-a").is_dir()
    assert (machine.root / "etc/crio/policies").is_symlink()


def test_a_database_of_packages_that_cannot_be_read_is_told(machine: Machine) -> None:
    machine.write("/etc/os-release", 'ID="rocky"\nID_LIKE="rhel centos fedora"\n')
    machine.write("/usr/bin/dnf", mode=0o755)
    machine.teach("rpm", return_code=1, stderr="error: rpmdb: damaged header #1 retrieved\n")

    with pytest.raises(RemovalError, match=r"which of containerd\.io are there: rpm's database is damaged"):
        plan_packages(machine.host, "containerd", Packages(("containerd.io",)))
