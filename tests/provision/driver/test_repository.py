"""A node learns of a repository and of its key, and trusts nothing that the key did not sign."""

from __future__ import annotations

import configparser

import pytest

from provision.declaration.spec.model import DriverSource, Repository
from provision.planning.driver.packages.catalogue import DISTRIBUTIONS
from provision.planning.driver.packages.repository import render
from provision.planning.node_plan import FileContent, Problem

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQINBGJ\n-----END PGP PUBLIC KEY BLOCK-----\n"
MIRROR = Repository(url="https://mirror.example/cuda/node/", key=KEY)


def rendered(label: str, source: DriverSource, declared: Repository | None) -> dict[str, str]:
    distribution = next(each for each in DISTRIBUTIONS if f"{each.id} {each.version_id}" == label)
    found = render(distribution, source, declared)
    assert not isinstance(found, Problem), found
    assert all(isinstance(file, FileContent) and file.mode == "0644" for file in found)
    return {file.path: file.content for file in found}


def test_apt_gets_a_flat_repository() -> None:
    assert rendered("debian 13", DriverSource.NVIDIA, MIRROR) == {
        "/etc/apt/keyrings/grapnel-nvidia.asc": KEY,
        "/etc/apt/sources.list.d/grapnel-nvidia.sources": (
            "# managed by grapnel: the next apply puts back what is changed here\n"
            "Types: deb\n"
            "URIs: https://mirror.example/cuda/node/\n"
            "Suites: /\n"
            "Signed-By: /etc/apt/keyrings/grapnel-nvidia.asc\n"
        ),
    }


@pytest.mark.parametrize(
    ("label", "path"),
    [
        ("rocky 9", "/etc/yum.repos.d/grapnel-nvidia.repo"),
        ("amzn 2023", "/etc/yum.repos.d/grapnel-nvidia.repo"),
        ("sles 15", "/etc/zypp/repos.d/grapnel-nvidia.repo"),
    ],
)
def test_rpm_based_systems_get_a_repo_file_that_checks_signatures(label: str, path: str) -> None:
    files = rendered(label, DriverSource.NVIDIA, MIRROR)
    key_path = "/etc/pki/rpm-gpg/RPM-GPG-KEY-grapnel-nvidia"
    parser = configparser.ConfigParser()
    parser.read_string(files[path])

    assert set(files) == {path, key_path}
    assert files[key_path] == KEY
    assert parser.sections() == ["grapnel-nvidia"]
    assert parser["grapnel-nvidia"]["baseurl"] == MIRROR.url
    assert parser["grapnel-nvidia"]["gpgcheck"] == "1"
    assert parser["grapnel-nvidia"]["gpgkey"] == f"file://{key_path}"


def test_a_mirror_of_ubuntu_s_archive_is_checked_by_ubuntu_s_key() -> None:
    files = rendered("ubuntu 24.04", DriverSource.CANONICAL, Repository(url="https://mirror.example/ubuntu"))

    assert list(files) == ["/etc/apt/sources.list.d/grapnel-nvidia.sources"]
    assert files["/etc/apt/sources.list.d/grapnel-nvidia.sources"].splitlines()[2:] == [
        "URIs: https://mirror.example/ubuntu",
        "Suites: noble noble-updates noble-security",
        "Components: main restricted universe multiverse",
        "Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg",
    ]


@pytest.mark.parametrize(
    ("label", "source", "declared"),
    [
        ("debian 13", DriverSource.DISTRIBUTION, None),
        ("ubuntu 24.04", DriverSource.CANONICAL, None),
        ("debian 13", DriverSource.BUNDLE, Repository(folder="/srv/bundle")),
        ("debian 13", DriverSource.NONE, None),
    ],
    ids=["its own sources", "Ubuntu's own archive", "a bundle", "no packages at all"],
)
def test_a_node_that_needs_no_repository_gets_none(
    label: str, source: DriverSource, declared: Repository | None
) -> None:
    assert rendered(label, source, declared) == {}


@pytest.mark.parametrize(
    ("label", "hint"),
    [
        ("debian 13", "debian13/x86_64/ and key: the text of "),
        ("rhel 10", "rhel10/x86_64/CDF6BA43.pub"),
        ("ubuntu 26.04", "ubuntu2604/x86_64/ and key: the text of the key file there"),
    ],
)
def test_a_repository_without_a_key_is_refused(label: str, hint: str) -> None:
    distribution = next(each for each in DISTRIBUTIONS if f"{each.id} {each.version_id}" == label)

    found = render(distribution, DriverSource.NVIDIA, None)

    assert isinstance(found, Problem)
    assert found.code == "repository-key-missing"
    assert hint in found.hint
