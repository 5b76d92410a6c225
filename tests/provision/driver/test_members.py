"""What belongs to a driver is not what sounds like it."""

from __future__ import annotations

import msgspec
import pytest

from provision.planning.driver.packages.distributions import nvidia_apt, nvidia_dnf
from provision.planning.driver.versions.debian import DebianVersion
from provision.planning.driver.versions.rpm import RpmVersion
from tests.provision.samples import DATA

# Names and versions of the release notes of Amazon Linux 2023.10.20260120.
AMAZON = {
    "kmod-nvidia-open-dkms": ("3:580.126.09-1.amzn2023", True),
    "libnvidia-nscq": ("580.126.09-1", True),
    "libnvidia-nscq-570": ("570.211.01-1", True),
    "libnvsdm": ("580.126.09-1", True),
    "nvidia-fabric-manager": ("570.211.01-1", True),
    "nvidia-container-toolkit": ("1.18.1-1", False),
    "libnvidia-container1": ("1.18.1-1", False),
    "nvidia-driver-assistant": ("0.22.126.09-1", False),
    "nvidia-fs": ("2.27.3-1", False),
    "nvidia-gds": ("13.1.0-1", False),
    "nvlsm": ("2025.06.11-1", False),
    "egl-wayland": ("1.1.21-1.amzn2023", False),
}


@pytest.mark.parametrize("name", AMAZON)
def test_a_driver_s_packages_have_a_driver_s_version(name: str) -> None:
    version, expected = AMAZON[name]

    assert nvidia_dnf.MEMBERS.has(name, name, RpmVersion(version)) is expected


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("libcuda1", "580.95.05-1", True),
        ("nvidia-driver-pinning-580", "580.95.05-1ubuntu1", True),
        ("cuda-compat-12-8", "570.172.08-1", False),
        ("cuda-toolkit-13-0", "13.0.1-1", False),
        ("linux-modules-nvidia-580-server-open-6.8.0-139-generic", "6.8.0-139.139+1", False),
    ],
)
def test_the_same_holds_for_apt(name: str, version: str, expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert nvidia_apt.MEMBERS.has(name, name, DebianVersion(version)) is expected


def test_the_sample_is_what_was_published() -> None:
    text = DATA.joinpath("published-names.json").read_bytes()

    assert set(AMAZON) <= set(msgspec.json.decode(text)["amazon-580"]["names"])
