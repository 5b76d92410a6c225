"""What apt says, read as downloads and as findings; the words are those of apt 2.6 and 3.0."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.download import AptSource
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.future import write_future
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.transaction import Apt
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Download, Request, SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.playbooks.fakes import Machine

REQUEST = Request({"libcuda1": "550-2"}, ("libold",))
SIMULATED = """\
Remv libold [1.0]
Inst libcuda1 [535-1] (550-2 Debian:13/stable [amd64]) []
Inst libpci3 (1:3.13.0-2 Debian:13/stable [amd64])
Conf libcuda1 (550-2 Debian:13/stable [amd64])
"""
PRINTED = """\
'http://mirror.invalid/pool/l/libcuda1_550-2_amd64.deb' libcuda1_550-2_amd64.deb 1234 SHA256:aa
'file:/srv/with%20space/libpci3_1%253a3.13.0-2_amd64.deb' libpci3_1%3a3.13.0-2_amd64.deb 99 SHA256:bb
"""


def apt(machine: Machine, answer: Finished | None = None) -> None:
    """Let apt-get give an answer, by default that of a transaction that works."""

    def run(arguments: Sequence[str], _: float) -> Finished:
        machine.calls.append(" ".join(arguments))
        if answer is not None:
            return answer
        return Finished(0, SIMULATED if "--simulate" in arguments else PRINTED)

    machine._run = run  # type: ignore[method-assign] - this machine has apt-get and nothing else


def test_a_resolution_tells_what_to_fetch_and_what_changes(machine: Machine) -> None:
    apt(machine)

    found = AptSource().resolve(machine.host, REQUEST)

    assert [(one.name, one.size_bytes, one.digest) for one in found.downloads] == [
        ("libcuda1_550-2_amd64.deb", 1234, "SHA256:aa"),
        ("libpci3_1%3a3.13.0-2_amd64.deb", 99, "SHA256:bb"),
    ]
    assert (found.install, found.remove) == ({"libcuda1": "550-2", "libpci3": "1:3.13.0-2"}, {"libold": "1.0"})
    assert found.replaced == {"libcuda1": "535-1", "libpci3": ""}
    assert all(call.endswith("install libcuda1=550-2 libold-") for call in machine.calls)
    assert all("Debug::NoLocking=1" in call for call in machine.calls), "an unattended upgrade may go on meanwhile"


def test_files_that_the_node_was_given_are_one_more_source(machine: Machine) -> None:
    given = "/incoming/packages/libpci3_1%3a3.13.0-2_amd64.deb"
    place = machine.host.path(given)
    place.parent.mkdir(parents=True)
    place.write_bytes(b"a package")
    machine._run = lambda arguments, _: Finished(  # type: ignore[method-assign] # as in apt() above
        0, SIMULATED if "--simulate" in arguments else f"'file:{given.replace('%', '%25')}' {place.name} 9 \n"
    )
    source = AptSource().with_files([given])

    (found,) = source.resolve(machine.host, REQUEST).downloads

    assert source.options == ("--with-source", given)
    assert found.digest == f"sha256:{hashlib.sha256(b'a package').hexdigest()}", "apt names none for such a file"


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        pytest.param(Finished(124), "download-timeout", "within", id="a proxy that hangs"),
        pytest.param(
            Finished(100, "", "E: Version \u2018550-2\u2019 for \u2018libcuda1\u2019 was not found\n"),
            "package-not-found",
            "libcuda1 550-2",
            id="a version that no source has",
        ),
        pytest.param(
            Finished(
                100,
                "",
                "E: Malformed 2nd word in the Status line\nE: Problem with MergeList /var/lib/dpkg/status\n"
                "E: The package lists or status file could not be parsed or opened.\n",
            ),
            "packages-unreadable",
            "Problem with MergeList /var/lib/dpkg/status",
            id="a damaged database",
        ),
        pytest.param(
            Finished(100, "", "E: Unable to locate package libcuda9\n"), "package-not-found", "libcuda9", id="a name"
        ),
        pytest.param(
            Finished(
                100, "", "E: Failed to fetch http://m.invalid/l/libcuda1_550-2_amd64.deb  404  Not Found [IP: ::1 80]\n"
            ),
            "package-gone",
            "libcuda1_550-2_amd64.deb",
            id="a mirror that lost the package",
        ),
        pytest.param(
            Finished(100, "", "E: Failed to fetch file:/srv/libcuda1_550-2_amd64.deb  File not found\n"),
            "package-gone",
            "libcuda1_550-2_amd64.deb",
            id="a folder that lost the package",
        ),
        pytest.param(
            Finished(100, "", "E: Failed to fetch http://m.invalid/l/a_1%2b1_amd64.deb  Hash Sum mismatch\n"),
            "damaged-download",
            "a_1+1_amd64.deb",
            id="a mirror out of step",
        ),
        pytest.param(
            Finished(100, "", "E: Failed to fetch http://m.invalid/l/a_1_amd64.deb  Connection timed out\n"),
            "source-unreachable",
            "Connection timed out",
            id="a mirror that does not answer",
        ),
        pytest.param(
            Finished(
                100, "", "E: There were unauthenticated packages and -y was used without --allow-unauthenticated\n"
            ),
            "not-authenticated",
            "unauthenticated",
            id="a source without a key",
        ),
        pytest.param(
            Finished(
                100,
                "The following packages have unmet dependencies:\n libcuda1 : Depends: libssl3t64 but none\n",
                "E: Unable to correct problems, you have held broken packages.\n",
            ),
            "unresolvable",
            "libcuda1 : Depends: libssl3t64",
            id="packages of another release",
        ),
    ],
)
def test_a_failure_of_apt_has_a_name_and_a_remedy(machine: Machine, answer: Finished, code: str, words: str) -> None:
    apt(machine, answer)

    with pytest.raises(SourceError) as raised:
        AptSource().resolve(machine.host, REQUEST)

    assert raised.value.code == code
    assert words in str(raised.value)
    assert raised.value.remedy


def download_of(path: Path, text: str) -> Download:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Download("a_1_all.deb", f"file:{path}", len(text), f"SHA256:{digest}")


def test_packages_of_a_folder_on_the_disk_are_copied(machine: Machine) -> None:
    apt(machine)
    machine.write("/srv/a.deb", "package")
    machine.write("/set/packages/a_1_all.deb", "cut")
    machine.write("/set/packages/other_1_all.deb", "of an earlier run")

    AptSource().fetch(machine.host, REQUEST, [download_of("/srv/a.deb", "package")], "/set/packages", 10)

    assert machine.read("/set/packages/a_1_all.deb") == "package"
    assert machine.host.names("/set/packages") == ["a_1_all.deb"]


def test_a_copy_with_another_digest_is_refused(machine: Machine) -> None:
    apt(machine)
    machine.write("/srv/a.deb", "changed")
    machine.host.path("/set/packages").mkdir(parents=True)

    with pytest.raises(SourceError) as raised:
        AptSource().fetch(machine.host, REQUEST, [download_of("/srv/a.deb", "package")], "/set/packages", 10)

    assert raised.value.code == "damaged-download"


def test_the_future_database_has_the_new_packages_and_not_the_old_ones(machine: Machine) -> None:
    machine.write(
        "/var/lib/dpkg/status",
        "Package: libcuda1\nStatus: hold ok installed\nArchitecture: amd64\nVersion: 535-1\n\n"
        "Package: libcuda1\nStatus: install ok installed\nArchitecture: i386\nVersion: 535-1\n\n"
        "Package: libold\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\n"
        "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5\n",
    )
    machine.teach("dpkg --print-architecture", "amd64\n")
    machine.teach("dpkg-deb --field /set/libcuda1.deb", "Package: libcuda1\nArchitecture: amd64\nVersion: 550-2\n")
    machine.host.path("/set").mkdir()

    write_future(machine.host, {"libcuda1": "/set/libcuda1.deb"}, ["libold"], "/set/status")

    blocks = machine.read("/set/status").strip().split("\n\n")
    said = [" ".join(line.split(": ")[1] for line in block.splitlines()) for block in blocks]
    assert said == [
        "libcuda1 install ok installed i386 535-1",
        "bash install ok installed amd64 5",
        "libcuda1 install ok installed amd64 550-2",
    ]


def test_a_package_file_is_read_once_whatever_it_is_called_and_again_when_it_has_changed(machine: Machine) -> None:
    """dpkg-deb takes four processes for it, and staging asks three times."""
    place = machine.write("/set/libcuda1.deb", "550")
    for name in ("libcuda1", "linked"):
        machine.teach(f"dpkg-deb --field /set/{name}.deb", "Package: libcuda1\nArchitecture: amd64\nVersion: 550-2\n")
    host = machine.host

    assert Apt().describe(host, ["/set/libcuda1.deb"]) == {"/set/libcuda1.deb": ("libcuda1", "550-2")}
    place.with_name("linked.deb").hardlink_to(place)
    (header,) = AptSource().read_headers(host, ["/set/linked.deb"])
    assert (header.file, header.name, header.version) == ("/set/linked.deb", "libcuda1", "550-2")
    assert machine.calls == ["dpkg-deb --field /set/libcuda1.deb"]

    place.unlink()
    machine.write("/set/libcuda1.deb", "another")
    machine.teach("dpkg-deb --field /set/libcuda1.deb", "Package: libcuda1\nVersion: 580-1\n")
    assert Apt().describe(host, ["/set/libcuda1.deb"]) == {"/set/libcuda1.deb": ("libcuda1", "580-1")}


def test_a_file_that_cannot_be_read_is_asked_for_again(machine: Machine) -> None:
    machine.write("/set/cut.deb", "x")
    machine.teach("dpkg-deb --field /set/cut.deb", return_code=2, stderr="dpkg-deb: error: not a Debian archive\n")
    for _ in range(2):
        with pytest.raises(PackageError, match=r"/set/cut\.deb is not a Debian package: .*not a Debian archive"):
            Apt().describe(machine.host, ["/set/cut.deb"])
    machine.teach("dpkg-deb --field /set/cut.deb", "Package: whole\nVersion: 1\n")
    assert Apt().describe(machine.host, ["/set/cut.deb"]) == {"/set/cut.deb": ("whole", "1")}
