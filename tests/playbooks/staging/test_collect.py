"""Collecting a driver for other machines: what this one has counts for nothing, and it stays as it was."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id, parse_change
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.collect import (
    COLLECTED,
    collect_change,
    collected_archive,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageOptions
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import PackageSystem
from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.collected import (
    FILE,
    CollectedError,
    hand_out,
    take_back,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.download import AptSource
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.download import DnfSource
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import (
    Offered,
    Request,
    SourceError,
    file_digest,
)

from tests.playbooks.staging.node import HOME, KERNEL, Node, Packages, Source, change_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageResult

    from tests.playbooks.fakes import Machine

NEW = "550.163.01"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node that has a package which the driver needs."""
    offered = {name: [NEW] for name in ("libcuda1", "nvidia-dkms")}
    return Node(tmp_path, {"glx": "1.2"}, offered={**offered, "glx": ["1.2"]}, needs={"libcuda1": ("glx",)})


def collect(node: Node, change: DriverChange, source: Source | None = None, **options: Any) -> StageResult:
    wanted = replace(StageOptions(reserve_bytes=0), **options)
    return collect_change(node.host, PackageSystem(Packages(node), source or Source(node)), change, wanted, Clock())


def members(node: Node, change: DriverChange) -> dict[str, bytes]:
    with tarfile.open(node.path(collected_archive(change_id(change)))) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr] - all are files


def test_packages_that_were_handed_over_are_collected_with_the_others(node: Node) -> None:
    change = change_of()
    place = f"{HOME}/incoming/{change_id(change)}"
    file = node.write(f"{place}/packages/libcuda1_{NEW}.deb", f"libcuda1 {NEW}")
    node.write(f"{place}/list.json", json.dumps({f"packages/{file.name}": file_digest(file)}))
    del node.offered["libcuda1"]

    result = collect(node, change)

    assert result.complete, result.findings
    assert {f"packages/libcuda1_{NEW}.deb", "packages/glx_1.2.deb"} <= set(members(node, change))
    assert not node.path(place).exists()


def test_the_archive_has_what_other_machines_lack_though_this_one_has_it(node: Node) -> None:
    change = change_of()

    result = collect(node, change)

    found = members(node, change)
    assert (result.complete, result.findings) == (True, ())
    assert set(found) == {
        "change.json",
        "complete",
        f"modules/{KERNEL}.tar.gz",
        "packages.json",
        f"packages/libcuda1_{NEW}.deb",
        f"packages/nvidia-dkms_{NEW}.deb",
        "packages/glx_1.2.deb",
    }
    assert parse_change(found["change.json"]) == change
    assert set(json.loads(found["complete"])) == set(found) - {"complete"}
    described = {one["file"]: one for one in json.loads(found["packages.json"])}
    assert described[f"libcuda1_{NEW}.deb"] == {
        "file": f"libcuda1_{NEW}.deb",
        "name": "libcuda1",
        "version": NEW,
        "source": "driver",
        "depends": ["glx"],
    }


def test_nothing_but_the_archive_is_left_and_nothing_is_installed(node: Node) -> None:
    change = change_of()

    collect(node, change)

    assert node.files(COLLECTED) == {f"{change_id(change)}.tar"}
    assert node.installed == {"glx": "1.2"}
    assert node.files("/var/lib/grapnel/driver/staged") == set()


def test_packages_alone_need_no_compiler(node: Node) -> None:
    change = change_of()

    collect(node, change, without_modules=True)

    assert not [name for name in members(node, change) if name.startswith("modules/")]
    assert not [call for call in node.calls if call[0] == "dkms"]


def test_a_build_that_fails_leaves_no_archive(node: Node) -> None:
    node.compiler_fails = "nv.c:1: error: unknown type name"

    result = collect(node, change_of())

    (finding,) = result.findings
    assert (result.complete, finding.code) == (False, "build-failed")
    assert not node.path(COLLECTED).exists()


def test_what_a_killed_run_left_is_gone_after_the_next_one(node: Node) -> None:
    node.write(f"{COLLECTED}/.0123456789ab.tar.new", "a part")
    change = change_of()

    collect(node, change)

    assert node.files(COLLECTED) == {f"{change_id(change)}.tar"}


def test_a_manager_that_downloads_nothing_it_has_is_told(node: Node) -> None:
    class Lazy(Source):
        def for_any_machine(self, host: object, scratch: str) -> Source:
            return self

        def resolve(self, host: Any, request: Request) -> Any:
            left = {name: version for name, version in request.packages.items() if name != "libcuda1"}
            return super().resolve(host, Request(left))

    result = collect(node, change_of(), Lazy(node))

    (finding,) = result.findings
    assert finding.code == "installed-here"
    assert f"libcuda1 {NEW}" in finding.message


def test_what_was_installed_to_build_with_is_collected_for_the_next_driver_too(node: Node) -> None:
    """A manager that downloads nothing it has left dkms out of every driver after the first."""

    class Lazy(Source):
        def for_any_machine(self, host: object, scratch: str) -> Source:
            return self

        def resolve(self, host: Any, request: Request) -> Any:
            found = super().resolve(host, request)
            installed = {f"{name}_{version}.deb" for name, version in node.installed.items()}
            left = (one for one in found.downloads if request.again or one.name not in installed)
            return replace(found, downloads=tuple(left))

    node.installed |= {"dkms": "3.2", "gcc": "14"}
    node.offered |= {"dkms": ["3.2"], "gcc": ["14"]}
    node.write("/var/lib/grapnel/driver/tools.json", '["dkms"]')
    change = change_of()

    result = collect(node, change, Lazy(node))

    assert result.findings == ()
    packages = {name for name in members(node, change) if name.startswith("packages/")}
    assert packages == {f"packages/{name}.deb" for name in (f"libcuda1_{NEW}", f"nvidia-dkms_{NEW}", "dkms_3.2")}


STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12
Depends: libgcc-s1

Package: local-tool
Status: install ok installed
Architecture: all
Version: 1.0
Depends: libc6, python3
Breaks: libcuda1
Provides: tool

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 3
"""


def test_apt_takes_nothing_for_installed_but_what_no_source_has(machine: Machine) -> None:
    machine.write("/var/lib/dpkg/status", STATUS)
    (machine.root / "scratch").mkdir()

    def run(arguments: Sequence[str], _: float) -> Finished:
        return Finished(0, "amd64\n" if arguments[0] == "dpkg" else "libc6\nlibcuda1\n")

    machine._run = run  # type: ignore[method-assign] - this machine has apt and dpkg alone

    source = AptSource().for_any_machine(machine.host, "/scratch")

    assert (machine.root / "scratch/assumed").read_text() == (
        "Package: local-tool\nStatus: install ok installed\nArchitecture: all\nVersion: 1.0\nProvides: tool\n"
    )
    assert "Dir::State::status=/scratch/assumed" in source.options


CHOSEN = """\
Inst libcuda1 [535-1] (550-2 local-deb [amd64])
Inst libc6 [2.40-1] (2.41-12 local-deb [amd64])
Conf libcuda1 (550-2 local-deb [amd64])
"""


def test_apt_chooses_what_the_packages_need_of_one_another(machine: Machine) -> None:
    calls = []

    def run(arguments: Sequence[str], _: float) -> Finished:
        calls.append(list(arguments))
        return Finished(0, CHOSEN)

    machine._run = run  # type: ignore[method-assign] - this machine has apt alone
    files = {
        "/in/libcuda1.deb": ("libcuda1", "550-2"),
        "/in/nvidia-smi.deb": ("nvidia-smi", "550-2"),
        "/in/libc6.deb": ("libc6", "2.41-12"),
        "/in/perl.deb": ("perl", "5.40"),
    }

    chosen = AptSource().choose(
        machine.host,
        Request({"libcuda1": "550-2", "nvidia-smi": "550-2"}),
        Offered(files, {"perl": "5.36", "nvidia-smi": "550-2"}),
        "/scratch",
    )

    assert chosen == ("/in/libcuda1.deb", "/in/nvidia-smi.deb", "/in/libc6.deb"), "perl is not needed newer"
    (call,) = calls
    assert [call[at + 1] for at, word in enumerate(call) if word == "--with-source"] == list(files)
    assert "Dir::Etc::SourceList=/dev/null" in call, "no source of the machine's own"


RPM = """\
grapnel-package:\tlibnvidia-ml\t3\t580.65.06\t1.el9\tx86_64\tnvidia-driver-580.65.06-1.el9.src.rpm
rtld(GNU_HASH)
libcuda.so.1()(64bit)
grapnel-provides:
libnvidia-ml
libnvidia-ml.so.1()(64bit)
"""
RPM_CUDA = RPM.replace("libnvidia-ml\t", "nvidia-driver-cuda-libs\t").replace(
    "libnvidia-ml.so.1()(64bit)", "libcuda.so.1()(64bit)"
)


def test_rpms_say_what_they_need_of_those_beside_them(machine: Machine) -> None:
    def run(arguments: Sequence[str], _: float) -> Finished:
        return Finished(0, RPM if arguments[-1] == "/in/ml.rpm" else RPM_CUDA)

    machine._run = run  # type: ignore[method-assign] - this machine has rpm alone

    ml, cuda = DnfSource().read_headers(machine.host, ["/in/ml.rpm", "/in/cuda.rpm"])

    assert (ml.name, ml.version, ml.source) == ("libnvidia-ml", "3:580.65.06-1.el9", "nvidia-driver")
    assert (ml.depends, cuda.depends) == (("nvidia-driver-cuda-libs",), ())


def test_a_file_that_is_no_package_is_told(machine: Machine) -> None:
    machine._run = lambda *_: Finished(2, "", "not a Debian format archive")  # type: ignore[method-assign] - as above

    with pytest.raises(SourceError, match="cannot be read"):
        AptSource().read_headers(machine.host, ["/in/rubbish.deb"])


def test_an_archive_is_handed_out_to_one_user_and_taken_back(node: Node) -> None:
    change = change_of()
    collect(node, change)

    hand_out(node.host, change_id(change), os.getuid())

    place = node.path(FILE)
    assert tarfile.is_tarfile(place)
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert take_back(node.host)
    assert not place.parent.exists()
    assert not node.path(COLLECTED).exists()
    assert not take_back(node.host)


@pytest.mark.parametrize("identifier", ["0123456789ab", "../../etc/passwd", ""])
def test_nothing_else_is_handed_out(node: Node, identifier: str) -> None:
    with pytest.raises(CollectedError):
        hand_out(node.host, identifier, os.getuid())

    assert not node.path(FILE).exists()
