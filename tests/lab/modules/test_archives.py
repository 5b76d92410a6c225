"""Archives of the driver's real modules: which there are, and that a node with one compiles nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import bundle
from lab.machine.errors import PackageError
from lab.modules import ARCHIVES, Archive, archives, build
from lab.modules import __main__ as command
from lab.nodes import Node, NodeSpec, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "550.163.01"
PLACE = f"/usr/share/nvidia-current-dkms/nvidia-current-{VERSION}.dkms.tar.gz"
PIN = f"Package: src:nvidia-graphics-drivers\nPin: version {VERSION}*\nPin-Priority: 1001\n"
PACKAGES = (
    "nvidia-kernel-dkms",
    "nvidia-kernel-support",
    "libcuda1",
    "nvidia-smi",
    "libnvidia-ml1",
    "nvidia-alternative",
)


def write_packages(folder: Path, *lines: str) -> bundle.Bundle:
    """Write the index of a package folder: ``name version`` lines."""
    stanzas = [
        f"Package: {name}\nVersion: {version}\nFilename: ./{name}.deb\n" for name, version in map(str.split, lines)
    ]
    (folder / "Packages").write_text("\n".join(stanzas))
    return bundle.Bundle("trixie", folder)


def test_an_archive_has_the_name_that_debians_packages_look_for() -> None:
    assert Archive("trixie", "1.2").file_name == "nvidia-current-1.2.dkms.tar.gz"
    assert Archive("trixie", "1.2", "open").file_name == "nvidia-current-open-1.2.dkms.tar.gz"


def test_what_tests_change_between_is_built_beforehand() -> None:
    assert {(each.suite, each.version, each.flavour) for each in ARCHIVES} == {
        ("trixie", "535.309.01", "proprietary"),
        ("trixie", "550.163.01", "proprietary"),
        ("bookworm", "535.309.01", "proprietary"),
    }


def test_the_kernel_is_that_of_the_headers_in_the_folder(tmp_path: Path) -> None:
    folder = write_packages(
        tmp_path, "linux-headers-amd64 6.1", "linux-headers-6.1-2-amd64 6.1", "linux-headers-6.1-2-common 6.1"
    )
    assert folder.kernel_release == "6.1-2-amd64"


def test_a_folder_without_headers_says_so(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="headers of exactly one kernel"):
        _ = write_packages(tmp_path, "dkms 3").kernel_release


def test_a_driver_that_the_folder_lacks_is_named_with_those_that_it_has(tmp_path: Path) -> None:
    folder = write_packages(tmp_path, "nvidia-kernel-dkms 550.163.01-2")
    with pytest.raises(PackageError, match=r"no nvidia-kernel-dkms of 535\.309\.01\nversions: 550\.163\.01-2"):
        archives.module_package(folder, Archive("trixie", "535.309.01"))


def test_suites_after_the_one_with_that_kernel_are_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_packages(tmp_path, "linux-headers-6.1-2-amd64 6.1")
    asked: list[str] = []

    def fetched(suite: str) -> bundle.Bundle:
        asked.append(suite)
        return folder

    monkeypatch.setattr(bundle, "ensure", fetched)
    monkeypatch.setattr(archives, "ensure", lambda wanted: Path(wanted.suite))

    assert archives.archive(VERSION, "proprietary", "6.1-2-amd64") == Path("trixie")
    assert asked == ["trixie"]


@pytest.mark.parametrize(
    ("words", "built"),
    [
        ([], ["trixie 550.163.01 19", "trixie 535.309.01 19", "bookworm 535.309.01 19"]),
        (["trixie"], ["trixie 550.163.01 19", "trixie 535.309.01 19"]),
        (["trixie", "550.163.01"], ["trixie 550.163.01 0"]),
    ],
)
def test_archives_are_built_by_suite_and_version_and_a_single_one_without_delay(
    words: list[str], built: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ensure", lambda wanted, niceness: f"{wanted.suite} {wanted.version} {niceness}")
    monkeypatch.setattr(sys, "argv", ["lab.modules", *words])

    assert command.main() == 0
    assert capsys.readouterr().out.splitlines() == built


def test_the_sources_ask_for_the_compilers_options_once(tmp_path: Path) -> None:
    makefile = tmp_path / "Kbuild"
    makefile.write_text("NV_CONFTEST_CFLAGS =\nNV_CONFTEST_CFLAGS += $(call cc-option,-fshort-wchar,)\n")

    build.hurry(tmp_path, makefile)

    assert makefile.read_text() == "NV_CONFTEST_CFLAGS :=\nNV_CONFTEST_CFLAGS += $(call cc-option,-fshort-wchar,)\n"
    assert "compress_xz_opts" in (tmp_path / "etc/dkms/framework.conf.d/quick.conf").read_text()


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    site = Site(f"m{os.getpid()}")
    try:
        yield site.up(NodeSpec("n1", gpus=1, builder=True))
    finally:
        site.destroy()


@pytest.mark.nodes
@pytest.mark.long
def test_a_node_installs_and_loads_the_real_modules_without_compiling(builder: Node) -> None:
    archive = archives.archive(VERSION, "proprietary", builder.kernel_release)
    target = builder.root / PLACE.lstrip("/")
    target.parent.mkdir(parents=True)
    target.write_bytes(archive.read_bytes())
    builder.run(["tee", "/etc/apt/preferences.d/driver"], input_text=PIN)
    builder.run(["apt-get", "-qq", "update"])

    install = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "install", *PACKAGES]
    said = builder.run(install, timeout_s=600).stdout
    builder.run(["modprobe", "nvidia"])

    assert "Building module" not in said
    assert (
        f"nvidia-current/{VERSION}, {builder.kernel_release}, x86_64: installed"
        in builder.run(["dkms", "status"]).stdout
    )
    assert builder.run(["modinfo", "-F", "license", "nvidia-current"]).stdout == "NVIDIA\n"
    assert f"x86_64 Kernel Module  {VERSION}" in builder.run(["cat", "/proc/driver/nvidia/version"]).stdout
    assert builder.gpus[0].uuid in builder.run(["nvidia-smi", "-L"]).stdout
