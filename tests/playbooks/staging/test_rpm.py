"""What dnf, zypper and rpm say, read as downloads; versions compared as rpm's own test suite has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.download import DnfSource, parse_table
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.version import is_newer
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Request, SourceError
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.download import ZypperSource, parse_summary

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

DNF = """\
================================================================================
 Package              Arch    Version               Repository             Size
================================================================================
Installing:
 kmod-nvidia-open-dkms noarch 3:570.133.20-1.el9    cuda-rhel9-x86_64      14 M
Upgrading:
 libnvidia-ml         x86_64  3:570.133.20-1.el9    cuda-rhel9-x86_64     642 k
Removing:
 nvidia-old           x86_64  3:550.163.01-1.el9    @cuda-rhel9-x86_64    1.2 M

Transaction Summary
================================================================================
Install  1 Package
"""
ZYPPER = """\
<?xml version='1.0'?>
<stream>
<message type="info">Loading repository data...</message>
<install-summary download-size="15000000" space-usage-diff="40" packages-to-change="2">
<to-upgrade><solvable type="package" name="nvidia-compute-G06" edition="570.133.20-1" arch="x86_64" edition-old="550.163.01-1"/></to-upgrade>
<to-install><solvable type="package" name="libfoo" edition="1:2.0-3" arch="noarch"/></to-install>
<to-remove><solvable type="package" name="nvidia-old" edition="1.0-1" arch="x86_64"/></to-remove>
</install-summary>
</stream>
"""  # noqa: E501 - as zypper writes it


def test_dnfs_table_tells_files_sizes_and_what_happens() -> None:
    found = parse_table(DNF, {"libnvidia-ml": "3:550.163.01-1.el9"})

    assert [(one.name, one.size_bytes) for one in found.downloads] == [
        ("kmod-nvidia-open-dkms-570.133.20-1.el9.noarch.rpm", 14 * 1024**2),
        ("libnvidia-ml-570.133.20-1.el9.x86_64.rpm", 642 * 1024),
    ]
    assert found.replaced == {"kmod-nvidia-open-dkms": "", "libnvidia-ml": "3:550.163.01-1.el9"}
    assert found.remove == {"nvidia-old": "3:550.163.01-1.el9"}


def test_zyppers_summary_tells_files_and_what_happens() -> None:
    found = parse_summary(ZYPPER)

    assert [one.name for one in found.downloads] == [
        "nvidia-compute-G06-570.133.20-1.x86_64.rpm",
        "libfoo-2.0-3.noarch.rpm",
    ]
    assert found.size_bytes == 15000000
    assert found.replaced == {"nvidia-compute-G06": "550.163.01-1", "libfoo": ""}
    assert found.remove == {"nvidia-old": "1.0-1"}


def test_zyppers_answer_must_be_one_of_zypper() -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        parse_summary("<stream>")
    with pytest.raises(SourceError, match="not one that it writes"):
        parse_summary("<!DOCTYPE x [<!ENTITY a 'b'>]><stream/>")


def test_a_file_without_a_trusted_signature_is_refused(machine: Machine) -> None:
    machine.teach("dnf")
    machine.teach("rpmkeys --checksig", "/set/a.rpm: digests SIGNATURES NOT OK\n")
    downloads = parse_table(DNF, {}).downloads[:1]
    machine.write(f"/set/{downloads[0].name}")

    with pytest.raises(SourceError) as raised:
        DnfSource().fetch(machine.host, Request({"kmod-nvidia-open-dkms": "3:570.133.20-1.el9"}), downloads, "/set", 9)

    assert raised.value.code == "not-authenticated"
    assert "rpm --import" in raised.value.remedy


@pytest.mark.parametrize(
    ("source", "answer", "code"),
    [
        pytest.param(
            DnfSource(), Finished(1, "", "No match for argument: a-1\n"), "package-not-found", id="dnf: unknown"
        ),
        pytest.param(DnfSource(), Finished(124), "download-timeout", id="dnf: a proxy that hangs"),
        pytest.param(
            DnfSource(),
            Finished(1, "", "Curl error (28): Timeout was reached for http://m.invalid/repodata/repomd.xml []\n"),
            "source-unreachable",
            id="dnf: no route",
        ),
        pytest.param(
            DnfSource(),
            Finished(
                1,
                "[MIRROR] a-1.noarch.rpm: Status code: 404 for http://m.invalid/noarch/a-1.noarch.rpm (IP: ::1)\n",
                "Error: Error downloading packages:\n  a-1.noarch: Cannot download, all mirrors were already tried\n",
            ),
            "package-gone",
            id="dnf: a mirror that lost the package",
        ),
        pytest.param(
            DnfSource(),
            Finished(
                1,
                "",
                "Error opening /srv/m/a-1.noarch.rpm: No such file or directory\n"
                "Error: Some packages from local repository have incorrect checksum\n",
            ),
            "package-gone",
            id="dnf: a folder that lost the package",
        ),
        pytest.param(
            DnfSource(),
            Finished(
                1,
                "",
                "Error: Error downloading packages:\n  a-1-1.noarch: Download failed: Curl error (23): Failed writing "
                "received data to disk/application for http://u:p@m.invalid/noarch/a-1.noarch.rpm [Failure writing "
                "output to destination]\n",
            ),
            "no-space",
            id="dnf: a full disk",
        ),
        pytest.param(
            ZypperSource(),
            Finished(
                8,
                '<message type="error">File &apos;./noarch/a-1.noarch.rpm&apos; not found on medium '
                "&apos;http://u:p@m.invalid/&apos;</message>",
            ),
            "package-gone",
            id="zypper: a mirror that lost the package",
        ),
        pytest.param(
            ZypperSource(),
            Finished(
                8,
                '<message type="error">Failed to provide Package a-1.noarch (lab). Do you want to retry retrieval?\n\n'
                "[lab|http://user@m.invalid/] Can&apos;t provide file &apos;./noarch/a-1.noarch.rpm&apos;\nHistory:\n"
                " - Can&apos;t hardlink/copy /var/tmp/AP_0x/noarch/a-1.noarch.rpm to /set/.cache/lab\n</message>",
            ),
            "no-space",
            id="zypper: a full disk",
        ),
        pytest.param(
            ZypperSource(),
            Finished(
                124,
                '<download url="http://u:p@m.invalid/noarch/a-1.noarch.rpm" percent="0" rate="0"/>\n',
                "nothing has arrived for 90 s\n",
            ),
            "download-timeout",
            id="zypper: a server that hangs",
        ),
        pytest.param(
            ZypperSource(),
            Finished(104, "<message>No provider of 'a = 1' found.</message>"),
            "package-not-found",
            id="zypper",
        ),
    ],
)
def test_failures_have_names(machine: Machine, source: DnfSource | ZypperSource, answer: Finished, code: str) -> None:
    machine.teach("dnf", lambda: answer)
    machine.teach("env ZYPP_CONF=", lambda: answer)

    with pytest.raises(SourceError) as raised:
        source.resolve(machine.host, Request({"a": "1"}))

    assert raised.value.code == code
    assert "u:p@" not in str(raised.value)
    if "m.invalid" in answer.stdout + answer.stderr:
        assert "m.invalid" in str(raised.value)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.0-1", "1.0-2"),
        ("1.9-1", "1.10-1"),
        ("1.0~rc1-1", "1.0-1"),
        ("1.0-1", "1.0^git1-1"),
        ("9.0-1", "1:1.0-1"),
        ("1.0a-1", "1.0.1-1"),
        ("550.163.01-1.el9", "570.133.20-1.el9"),
    ],
)
def test_versions_are_compared_as_rpm_does(older: str, newer: str) -> None:
    assert is_newer(newer, older)
    assert not is_newer(older, newer)
    assert not is_newer(newer, newer)


UPGRADE = """\
Installing:
 nvidia-driver-cuda   x86_64  3:580.95.05-1.el9     grapnel-nvidia        10 M
Upgrading:
 gcc                  x86_64  11.5.0-5.el9          base                  30 M
"""
GCC = "gcc\t0\t11.4.1\t2.el9\tx86_64\tgcc.src.rpm\t1700000000\t7\n"


def test_a_package_that_an_administrator_has_locked_is_not_changed_for_a_driver(machine: Machine) -> None:
    machine.teach("dnf", lambda: Finished(1, UPGRADE))
    machine.teach("rpm --query --queryformat", "gcc 11.4.1-2.el9\n")
    machine.teach("rpm --query gcc --queryformat", GCC)
    request = Request({"nvidia-driver-cuda": "3:580.95.05-1.el9"})
    assert DnfSource().resolve(machine.host, request).replaced["gcc"] == "11.4.1-2.el9"

    machine.write("/etc/dnf/plugins/versionlock.list", "gcc-0:11.4.1-2.el9.*\n")
    with pytest.raises(SourceError, match="gcc would be changed for the driver, and a lock"):
        DnfSource().resolve(machine.host, request)


def test_a_missing_cpio_is_named(machine: Machine) -> None:
    machine.write("/usr/bin/rpm2cpio", mode=0o755)
    with pytest.raises(SourceError, match="cannot be unpacked without cpio") as raised:
        DnfSource().unpack(machine.host, "/set/kmod.rpm", "/scratch")
    assert raised.value.remedy.startswith("install cpio")
