"""Packages are kept at their version, in each package manager's own words."""

from __future__ import annotations

from provision.planning.driver.packages.closure import DriverPackages
from provision.planning.driver.packages.distributions import nvidia_apt
from provision.planning.driver.packages.members import Members
from provision.planning.driver.packages.pins import dnf, zypper
from provision.planning.driver.packages.pins.apt import PIN_PATH, render_pin
from provision.planning.driver.packages.pins.render import render
from provision.planning.driver.terms import Manager
from provision.planning.driver_change import PackageVersion

CANONICAL = Members(sources=("nvidia-graphics-drivers-580-server",), exact=("nvidia-graphics-drivers-580-server",))


def driver(version: str, **packages: str) -> DriverPackages:
    listed = (PackageVersion(name.replace("_", "-"), text) for name, text in packages.items())
    return DriverPackages(version=version, packages=tuple(sorted(listed)))


def test_nvidia_s_packages_are_pinned_by_name() -> None:
    found = driver(
        "580.95.05",
        libcuda1="580.95.05-1",
        nvidia_driver_cuda="580.95.05-1",
        nvidia_fabricmanager="580.95.05-1ubuntu1",
    )

    assert render_pin(found, nvidia_apt.MEMBERS) == (
        "# managed by grapnel: the next apply puts back what is changed here\n"
        "# packages: libcuda1 nvidia-driver-cuda nvidia-fabricmanager\n"
        "\n"
        "Package: libcuda1 nvidia-driver-cuda\n"
        "Pin: version 580.95.05-1\n"
        "Pin-Priority: 1001\n"
        "\n"
        "Package: nvidia-fabricmanager\n"
        "Pin: version 580.95.05-1ubuntu1\n"
        "Pin-Priority: 1001\n"
    )


def test_packages_beside_the_distribution_s_own_source_are_pinned_by_name() -> None:
    version = "580.178.04-0ubuntu0.24.04.1"
    found = driver(version, libnvidia_compute_580_server=version, linux_signatures_nvidia_generic="6.8.0-139.139+1")

    assert render_pin(found, CANONICAL).splitlines()[3:] == [
        "Package: src:nvidia-graphics-drivers-580-server",
        f"Pin: version {version}",
        "Pin-Priority: 1001",
        "",
        "Package: linux-signatures-nvidia-generic",
        "Pin: version 6.8.0-139.139+1",
        "Pin-Priority: 1001",
    ]


def test_apt_alone_has_a_file_of_its_own() -> None:
    found = driver("580.95.05", libcuda1="580.95.05-1")

    assert [file.path for file in render(Manager.APT, found, nvidia_apt.MEMBERS)] == [PIN_PATH]
    assert render(Manager.DNF, found, nvidia_apt.MEMBERS) == ()
    assert render(Manager.ZYPPER, found, nvidia_apt.MEMBERS) == ()


def test_dnf_s_locks_are_written_as_dnf_writes_them() -> None:
    """The first is in the Driver Installation Guide, "Version locking"."""
    packages = [
        PackageVersion("kmod-nvidia-open-dkms", "3:575.51-1.fc41"),
        PackageVersion("libnvidia-nscq", "580.126.09-1"),
    ]

    assert dnf.lock_entries(packages) == (
        "kmod-nvidia-open-dkms-3:575.51-1.fc41.*",
        "libnvidia-nscq-0:580.126.09-1.*",
    )


def test_zypper_s_locks_name_packages() -> None:
    assert zypper.lock_entries([PackageVersion("nvidia-compute-G06", "580.126.09-1")]) == (
        "type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: nvidia-compute-G06\n",
    )
