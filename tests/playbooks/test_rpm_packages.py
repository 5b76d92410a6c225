"""Packages on nodes with dnf and zypper, by what the real tools print (``data/rpm``)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, HostError
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf import facts as dnf
from ansible_collections.grapnel.node.plugins.module_utils.packages.facts import find_facts
from ansible_collections.grapnel.node.plugins.module_utils.packages.interest import ENGINE_PACKAGES
from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import Freshness
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.capabilities import plain
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.holds import (
    dnf_holds,
    dnf_leaves_out,
    zypper_holds,
    zypper_leaves_out,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper import facts as zypper

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

DATA = Path(__file__).parent / "data" / "rpm"
REPOSITORY = "/var/cache/dnf/cuda-ed9b82cad46dd7f8/repodata"
FRESHNESS = Freshness(max_age_s=3600, timeout_s=10)
DRIVER = Rpm("nvidia-driver", "3", "580.65.06", "1.el9", "x86_64", "nvidia-driver-580.65.06-1.el9.src.rpm")


def sample(name: str) -> str:
    return (DATA / name).read_text()


def install(machine: Machine, *commands: str, os_release: str) -> None:
    machine.write("/etc/os-release", os_release)
    for command in commands:
        machine.write(f"/usr/bin/{command}", mode=0o755)


@pytest.mark.parametrize(
    ("os_release", "commands", "name"),
    [
        ("ID=debian\n", ("apt-get",), "apt"),
        ("ID=debian\n", ("apt-get", "dnf", "zypper"), "apt"),
        ("ID=ubuntu\nID_LIKE=debian\n", ("apt-get",), "apt"),
        ("ID=pop\nID_LIKE='ubuntu debian'\n", ("apt-get",), "apt"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', ("dnf",), "dnf"),
        ('ID="amzn"\nID_LIKE="fedora"\n', ("dnf", "apt-get"), "dnf"),
        ('ID="sles"\nID_LIKE="suse"\n', ("zypper", "dnf"), "zypper"),
        ('ID="sles"\nID_LIKE="suse"\n', ("dnf",), "dnf"),
        ("ID=nobody-knows\n", ("zypper",), "zypper"),
        ('ID="rocky"\n', (), "dnf"),
        ("", (), "apt"),
    ],
)
def test_the_package_manager_is_the_distributions_own_if_it_is_there(
    os_release: str, commands: tuple[str, ...], name: str, machine: Machine
) -> None:
    install(machine, *commands, os_release=os_release)

    manager = find_facts(machine.host)

    assert name == manager.NAME


def test_dnf_offers_every_version_with_its_source_its_needs_and_its_stream(machine: Machine) -> None:
    install(machine, "dnf", os_release="ID=rocky\n")
    machine.write(f"{REPOSITORY}/5bdc-modules.yaml.gz")
    machine.teach("dnf -q -C --disableplugin=versionlock", sample("dnf-repoquery.txt"))
    machine.teach("dnf -q -C module info nvidia-driver", sample("dnf-module-info.txt"))

    available = dnf.read_available(machine.host)

    assert available["nvidia-driver"] == [
        {
            "version": "3:575.57.08-1.el9",
            "source": "nvidia-driver",
            "depends": ["nvidia-driver-libs"],  # nvidia-kmod has two providers: the planner chooses the flavour
            "module_stream": "nvidia-driver:575-open",
            "fetchable": True,
        },
        {
            "version": "3:580.65.06-1.el9",
            "source": "nvidia-driver",
            "depends": ["nvidia-driver-libs"],
            "module_stream": "nvidia-driver:open-dkms",
            "fetchable": True,
        },
    ]
    assert available["kmod-nvidia-open-dkms"][1]["depends"] == ["nvidia-driver"]
    assert available["nvidia-driver-cuda-libs"][0]["depends"] == ["libnvidia-ml"]  # by the library that it links
    assert available["nvidia-driver-cuda"][0]["depends"] == ["nvidia-driver-cuda-libs", "nvidia-persistenced"]
    assert available["containerd.io"][1]["version"] == "1.7.27-3.1.el9"
    assert available["nvidia-persistenced"][0]["module_stream"] is None


def test_repositories_without_modules_are_not_asked_for_streams(machine: Machine) -> None:
    install(machine, "dnf", os_release="ID=rocky\n")
    machine.teach("dnf -q -C --disableplugin=versionlock", sample("dnf-repoquery.txt"))

    available = dnf.read_available(machine.host)

    assert len(machine.calls) == 1
    assert {one["module_stream"] for one in available["nvidia-driver"]} == {None}


def with_packages(machine: Machine) -> None:
    install(machine, "dnf", os_release="ID=rocky\n")
    machine.write(f"{REPOSITORY}/5bdc-modules.yaml.gz")
    machine.write("/etc/yum.repos.d/nvidia.repo", "enabled=1")
    machine.teach("dnf -q -C --disableplugin=versionlock", sample("dnf-repoquery.txt"))
    machine.teach("dnf -q -C module info nvidia-driver", sample("dnf-module-info.txt"))


def test_dnf_is_asked_once_while_nothing_changes(machine: Machine) -> None:
    """It loads all metadata for each of its answers, and the facts of a node are read several times in a change."""
    with_packages(machine)
    first = dnf.read_available(machine.host)
    machine.calls.clear()

    again = dnf.read_available(machine.host)

    assert (again, machine.calls) == (first, [])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param(f"{REPOSITORY}/5bdc-modules.yaml.gz", "other", id="metadata that was fetched"),
        pytest.param(f"{REPOSITORY.replace('/repodata', '-2/repodata')}/repomd.xml", "", id="a repository more"),
        pytest.param("/etc/yum.repos.d/nvidia.repo", "enabled = 0", id="a repository that is switched off"),
        pytest.param("/etc/dnf/vars/stream", "9", id="a variable"),
        pytest.param("/run/grapnel/dnf-available.json", '{"state": 1, "available": ', id="a file that was cut"),
        pytest.param("/run/grapnel/dnf-available.json", "[]", id="a file of something else"),
    ],
)
def test_dnf_is_asked_again_after_a_change_of(path: str, text: str, machine: Machine) -> None:
    with_packages(machine)
    dnf.read_available(machine.host)
    machine.calls.clear()
    machine.write(path, text)

    dnf.read_available(machine.host)

    assert len(machine.calls) == len(["repoquery", "module info"])


def test_an_answer_without_packages_is_not_remembered(machine: Machine) -> None:
    """A dnf that was ended says nothing, and has more to say the next time."""
    with_packages(machine)
    machine.teach("dnf -q -C --disableplugin=versionlock", "")
    assert dnf.read_available(machine.host) == {}
    machine.teach("dnf -q -C --disableplugin=versionlock", sample("dnf-repoquery.txt"))

    assert "nvidia-driver" in dnf.read_available(machine.host)


def test_a_dnf_that_refuses_an_option_is_asked_without(machine: Machine) -> None:
    install(machine, "dnf", os_release="ID=fedora\n")
    machine.teach("dnf -q -C --disableplugin=versionlock", return_code=2, stderr="Unknown argument\n")
    machine.teach("dnf -q -C repoquery --qf", sample("dnf-repoquery.txt"))

    assert "nvidia-driver" in dnf.read_available(machine.host)


def test_zypper_offers_every_version_with_what_its_metadata_says(machine: Machine) -> None:
    machine.teach("zypper --non-interactive --quiet --no-refresh --xmlout search", sample("zypper-search.xml"))
    place = machine.write("/var/cache/zypp/raw/cuda-sles15/repodata/d24d-primary.xml.gz")
    shutil.copyfile(DATA / "primary.xml.gz", place)

    available = zypper.read_available(machine.host)

    assert [one["version"] for one in available["nvidia-driver"]] == ["3:580.65.06-1.el9", "3:575.57.08-1.el9"]
    assert available["libnvidia-ml"][0] == {
        "version": "3:580.65.06-1.el9",
        "source": "nvidia-driver",
        "depends": [],
        "module_stream": None,
        "fetchable": True,
    }
    assert available["nvidia-driver-libs"][0]["depends"] == ["libnvidia-ml"]
    assert available["nvidia-driver-cuda"][0]["depends"] == ["nvidia-driver-cuda-libs", "nvidia-persistenced"]


def test_a_zypper_that_has_fetched_nothing_is_not_asked(machine: Machine) -> None:
    """On a node without a network it went for the metadata, though it was told not to refresh."""
    assert zypper.read_available(machine.host) == {}
    assert machine.calls == []


def test_what_is_only_installed_cannot_be_fetched(machine: Machine) -> None:
    solvable = '<solvable status="{}" name="nvidia-driver" kind="package" edition="{}" arch="x86_64" repository="{}"/>'
    listed = (
        solvable.format("installed", "3:570.86.15-1", "(System Packages)"),
        solvable.format("other-version", "3:580.65.06-1", "CUDA"),
        solvable.format("installed", "3:580.65.06-1", "(System Packages)"),
        solvable.format("other-version", "3:575.57.08-1", "CUDA").replace("x86_64", "i686"),
    )
    machine.write("/var/cache/zypp/raw/cuda-sles15/cookie")
    machine.teach(
        "zypper", f"<stream><search-result><solvable-list>{''.join(listed)}</solvable-list></search-result></stream>"
    )

    found = {one["version"]: one["fetchable"] for one in zypper.read_available(machine.host)["nvidia-driver"]}

    assert found == {"3:570.86.15-1": False, "3:580.65.06-1": True}


@pytest.mark.parametrize("answer", ["", "Cannot open display\n", "<stream>"])
def test_an_answer_that_is_no_document_offers_nothing(answer: str, machine: Machine) -> None:
    machine.teach("zypper", answer, return_code=4)

    assert zypper.read_available(machine.host) == {}


def test_metadata_that_is_cut_off_leaves_the_versions(machine: Machine) -> None:
    machine.teach("zypper", sample("zypper-search.xml"))
    place = machine.write("/var/cache/zypp/raw/cuda-sles15/repodata/d24d-primary.xml.gz")
    place.write_bytes((DATA / "primary.xml.gz").read_bytes()[:900])

    available = zypper.read_available(machine.host)

    assert [one["version"] for one in available["nvidia-driver"]] == ["3:580.65.06-1.el9", "3:575.57.08-1.el9"]


def test_two_versions_of_a_library_are_an_interruption(machine: Machine) -> None:
    machine.teach("rpm -qa", sample("rpm-qa-interrupted.txt"))

    packages, is_interrupted = dnf.read_installed(machine.host)

    assert is_interrupted
    assert packages["nvidia-driver"] == {
        "version": "3:580.65.06-1.el9",
        "source": "nvidia-driver",
        "hold": False,
        "status": "installed",
    }
    assert packages["containerd.io"]["version"] == "1.7.27-3.1.el9"


@pytest.mark.parametrize("name", ["kmod-nvidia-580-5.14.0-503", "nvidia-open-driver-G06-signed-kmp-default"])
def test_modules_for_several_kernels_are_no_interruption(name: str, machine: Machine) -> None:
    line = f"{name}\t0\t580.65.06\t{{}}\tx86_64\t{name}-580.65.06-1.src.rpm\n"
    machine.teach("rpm -qa", line.format("1") + line.format("2") + "libcuda\t0\t580.1\t1\ti686\t(none)\n")

    packages, is_interrupted = zypper.read_installed(machine.host)

    assert not is_interrupted
    assert list(packages) == [name]


@pytest.mark.parametrize(
    ("return_code", "stderr"),
    [
        (0, "error: SELECT hnum, blob FROM 'Packages': 11: database disk image is malformed\n"),
        (1, "error: cannot open Packages database in /var/lib/rpm\n"),
        (127, "rpm does not exist\n"),
    ],
)
def test_a_database_that_cannot_be_read_is_not_an_empty_one(return_code: int, stderr: str, machine: Machine) -> None:
    """With a malformed database rpm lists what it can, and ends with 0."""
    machine.teach("rpm -qa", sample("rpm-qa-interrupted.txt"), return_code=return_code, stderr=stderr)

    with pytest.raises(HostError, match="rpm --rebuilddb"):
        dnf.read_installed(machine.host)


@pytest.mark.parametrize(
    ("path", "text", "is_held"),
    [
        ("/etc/dnf/plugins/versionlock.list", "# a lock\nnvidia-driver-3:580.65.06-1.el9.*\n", True),
        ("/etc/dnf/plugins/versionlock.list", "*nvidia*580*\n", True),
        ("/etc/dnf/plugins/versionlock.list", "!nvidia-driver-3:580.65.06-1.el9.*\n", False),
        ("/etc/dnf/plugins/versionlock.list", "nvidia-driver-libs-3:580.65.06-1.el9.*\n", False),
        ("/etc/dnf/versionlock.toml", '[[packages]]\nname = "nvidia-driver"\n', True),
        ("/etc/dnf/dnf.conf", "[main]\nexclude=kernel*\n  nvidia-*\nbest=True\n", True),
        ("/etc/dnf/dnf.conf", "[main]\nexcludepkgs = kernel, nvidia-driver\n", True),
        ("/etc/dnf/dnf.conf", "[main]\nexclude=kernel*\n", False),
    ],
)
def test_what_dnf_does_not_touch_is_held(path: str, text: str, machine: Machine, *, is_held: bool) -> None:
    machine.write(path, text)

    assert dnf_holds(machine.host)(DRIVER) is is_held


@pytest.mark.parametrize(
    ("text", "is_held"),
    [
        ("\ntype: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: nvidia-driver*\n\n", True),
        ("type: package\nversion: == 3:580.65.06\nmatch_type: glob\nsolvable_name: nvidia-driver\n", True),
        ("type: package\nmatch_type: regex\nsolvable_name: ^nvidia-d\n", True),
        ("type: package\nmatch_type: regex\nsolvable_name: ^nvidia-(\n", False),
        ("type: package\nmatch_type: substring\nsolvable_name: driver\n", True),
        ("type: patch\nmatch_type: glob\nsolvable_name: *\n", False),
        ("type: package\nmatch_type: glob\nsolvable_name: nvidia\n", False),
    ],
)
def test_what_zypper_has_locked_is_held(text: str, machine: Machine, *, is_held: bool) -> None:
    machine.write("/etc/zypp/locks", text)

    assert zypper_holds(machine.host)(DRIVER) is is_held


def test_the_process_that_a_pid_file_names_holds_the_lock_while_it_lives(machine: Machine) -> None:
    machine.write("/var/cache/dnf/metadata_lock.pid", "640")
    gone = dnf.read_lock_holder(machine.host)
    machine.write("/proc/640/comm", "dnf\n")

    assert gone is None
    assert dnf.read_lock_holder(machine.host) == {"pid": 640, "command": "dnf"}
    assert zypper.read_lock_holder(machine.host) is None


def test_the_oldest_repository_tells_the_age_of_dnfs_metadata(machine: Machine) -> None:
    for name, time_s in (("appstream-1", 5000), ("cuda-2", 2000)):
        os.utime(machine.write(f"/var/cache/dnf/{name}/repodata/repomd.xml"), (time_s, time_s))
    said = "Error: Failed to download metadata for repo 'cuda'\nhm\n"
    machine.teach("dnf -q -y makecache", return_code=1, stderr=said)

    fresh = dnf.refresh_lists(machine.host, FRESHNESS, Clock(lambda: 5500.0))
    old = dnf.refresh_lists(machine.host, FRESHNESS, Clock(lambda: 6000.0))

    assert fresh == {"lists_age_s": 3500, "lists_error": None}
    assert old == {"lists_age_s": 4000, "lists_error": "Error: Failed to download metadata for repo 'cuda'"}


def test_metadata_that_dnf_has_confirmed_is_fresh_although_it_was_not_written_again(machine: Machine) -> None:
    """`dnf makecache` asks nobody before metadata_expire, and does not write again what has not changed."""
    os.utime(machine.write("/var/cache/dnf/cuda-2/repodata/repomd.xml"), (2000, 2000))
    machine.teach("dnf -q -y makecache --refresh")
    now = (machine.root / "var/cache/dnf").stat().st_mtime

    refreshed = dnf.refresh_lists(machine.host, FRESHNESS, Clock(lambda: now + 10))
    dnf.refresh_lists(machine.host, FRESHNESS, Clock(lambda: now + 20))

    assert refreshed["lists_age_s"] <= 10
    assert len(machine.calls) == 1


def test_a_package_source_that_is_newer_than_the_metadata_is_read(machine: Machine) -> None:
    """What a repository has that was just written was unknown until the metadata was an hour old."""
    os.utime(machine.write("/var/cache/dnf/base-1/repodata/repomd.xml"), (5000, 5000))
    source = machine.write("/etc/yum.repos.d/grapnel-docker.repo")
    machine.teach("dnf -q -y makecache --refresh")

    os.utime(source, (4000, 4000))
    dnf.refresh_lists(machine.host, FRESHNESS, Clock(lambda: 5500.0))
    before = len(machine.calls)
    os.utime(source, (5400, 5400))
    dnf.refresh_lists(machine.host, FRESHNESS, Clock(lambda: 5500.0))

    assert (before, len(machine.calls)) == (0, 1)


def test_zypper_metadata_that_did_not_change_counts_as_fresh_after_a_refresh(machine: Machine) -> None:
    folder = machine.root / "var/cache/zypp/raw/cuda/repodata"
    folder.mkdir(parents=True)
    (machine.root / "var/cache/zypp/solv").mkdir()
    for place in (folder, machine.root / "var/cache/zypp/solv"):
        os.utime(place, (1000, 1000))
    machine.teach("zypper --non-interactive --quiet refresh")

    zypper.refresh_lists(machine.host, FRESHNESS, Clock(lambda: 9000.0))

    assert (machine.root / "var/cache/zypp/solv").stat().st_mtime > 9000


def test_an_enabled_stream_is_told(machine: Machine) -> None:
    machine.write(
        "/etc/dnf/modules.d/nvidia-driver.module",
        "[nvidia-driver]\nname=nvidia-driver\nstream=open-dkms\nprofiles=\nstate=enabled\n",
    )

    assert dnf.read_state(machine.host)["module_streams"] == {"nvidia-driver": "open-dkms"}


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ("nvidia-driver-libs(x86-64) = 3:580.65.06-1.el9", "nvidia-driver-libs"),
        ("libcuda.so.1()(64bit)", "libcuda.so.1()(64bit)"),
        ("dkms >= 3.0", "dkms"),
        ("(opencl-filesystem or ocl-icd)", ""),
        ("config(nvidia-driver) = 3:580.65.06-1.el9", "config(nvidia-driver)"),
    ],
)
def test_a_capability_is_named_without_version_and_architecture(capability: str, name: str) -> None:
    assert plain(capability) == name


def test_engines_that_are_kept_away_are_told(machine: Machine) -> None:
    machine.write("/etc/dnf/dnf.conf", "[main]\nexclude=podman*\n")
    machine.write(
        "/etc/yum.repos.d/docker.repo", "[docker]\nbaseurl=https://m.example.com\nexcludepkgs=containerd.io\n"
    )
    machine.write("/etc/yum.repos.d/notes.txt", "exclude=runc\n")
    machine.write("/etc/zypp/locks", "type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: docker*\n")

    assert dnf_leaves_out(machine.host, ENGINE_PACKAGES) == ["containerd.io", "podman"]
    assert zypper_leaves_out(machine.host, ENGINE_PACKAGES) == ["docker", "docker-ce", "docker.io"]
