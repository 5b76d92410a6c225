"""Digests and signatures where OpenSSL is in FIPS mode: Debian 13's Python, OpenSSH and FIPS provider, in its tree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.nodes import microvm

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.functional

REPOSITORY = Path(__file__).resolve().parents[2]
# As on RHEL: both providers are there, and what does not say that it is not for security is had of the approved one.
SETTINGS = """\
openssl_conf = openssl_init
.include /fips/module.cnf
[openssl_init]
providers = provider_sect
alg_section = algorithm_sect
[provider_sect]
fips = fips_sect
default = default_sect
[default_sect]
activate = 1
[algorithm_sect]
default_properties = fips=yes
"""
START = (
    "openssl fipsinstall -quiet -module /usr/lib/x86_64-linux-gnu/ossl-modules/fips.so -out /fips/module.cnf; "
    "OPENSSL_CONF=/fips/openssl.cnf python3 /fips/fipsguest.py > /fips/said"
)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What each part answered, by its name."""
    folder = tmp_path_factory.mktemp("fips")
    given = folder / "upper/fips"
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("plugin", "provision"):
        shutil.copytree(REPOSITORY / package, given / package, ignore=ignored)
    collection = given / "ansible_collections/grapnel/node/plugins"
    shutil.copytree(REPOSITORY / "playbooks/plugins", collection, ignore=ignored)
    (given / "openssl.cnf").write_text(SETTINGS)
    shutil.copy(REPOSITORY / "tests/provision/fipsguest.py", given)
    microvm.change(microvm.ensure(), folder, ["sh", "-ec", START])
    answered: Mapping[str, Any] = json.loads((given / "said").read_text())
    return answered


def test_digests_that_are_not_approved_are_refused_there(said: Mapping[str, Any]) -> None:
    assert "unsupported" in said["md5"]


def test_what_dpkg_has_by_md5_is_compared_and_made(said: Mapping[str, Any]) -> None:
    assert said["changed"] == ["/etc/apparmor.d/runc"]
    assert said["packed"] == ["9dd4e461268c8034f5c8564e155c67a6", "usr/share/made"]


def test_downloads_and_marks_of_files_are_checked(said: Mapping[str, Any]) -> None:
    assert said["download"] is True
    assert said["mark"] == [False, True]


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_bundles_are_signed_and_verified_with_keys_of_approved_kinds(said: Mapping[str, Any], kind: str) -> None:
    assert said[kind] == "ci"
