"""From a runfile to packages: what dpkg reads in them, what is refused, what is kept, and that nothing is ever run."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from lab.runfile import SmallDriver, as_runfile
from provision.planning.driver.terms import Flavour
from provision.planning.supply.runfile.archive import Limits, unpack
from provision.planning.supply.runfile.errors import RunfileError
from provision.planning.supply.runfile.store import Converted, RunfileStore
from tests.provision.runfile.workbench import VERSION, Workbench, bench_content

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIBRARIES = "./usr/lib/x86_64-linux-gnu"


def dpkg(*words: str) -> str:
    return subprocess.run(["dpkg-deb", *words], check=True, capture_output=True, text=True).stdout


def files_of(converted: Converted, name: str) -> dict[str, str]:
    """Return mode and target by the paths of a package, as dpkg lists them."""
    package = next(each for each in converted.packages if each.name == name)
    listed = {}
    for line in dpkg("--contents", str(converted.path(package))).splitlines():
        mode, owner, _, _, _, path, *link = line.split(None, 7)
        assert owner == "root/root"
        if not path.endswith("/"):
            listed[path] = link[-1].removeprefix("-> ") if link else mode
    return listed


def field_of(converted: Converted, name: str, field: str) -> str:
    package = next(each for each in converted.packages if each.name == name)
    return dpkg("--field", str(converted.path(package)), field).strip()


def test_a_file_for_arm_makes_packages_for_arm(bench: Workbench) -> None:
    converted = bench.convert(SmallDriver(VERSION, architecture="aarch64"))

    files = files_of(converted, "nvidia-runfile")
    assert converted.architecture == "aarch64"
    assert {field_of(converted, each.name, "Architecture") for each in converted.packages} == {"arm64"}
    assert f"./usr/lib/aarch64-linux-gnu/libcuda.so.{VERSION}" in files
    assert not [path for path in files if "x86_64" in path]


def test_user_space_has_libraries_programs_and_firmware_and_nothing_for_a_screen(bench: Workbench) -> None:
    converted = bench.convert()

    files = files_of(converted, "nvidia-runfile")
    assert files[f"{LIBRARIES}/libcuda.so.{VERSION}"] == "-rwxr-xr-x"
    assert files[f"{LIBRARIES}/libcuda.so.1"] == f"libcuda.so.{VERSION}"
    assert files[f"{LIBRARIES}/libnvcuvid.so.1"] == f"libnvcuvid.so.{VERSION}"
    assert files["./usr/bin/nvidia-smi"] == "-rwxr-xr-x"
    assert files["./usr/bin/nvidia-modprobe"] == "-rwsr-xr-x"
    assert files["./etc/OpenCL/vendors/nvidia.icd"] == "-rw-r--r--"
    assert files[f"./usr/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"] == "-rw-r--r--"
    assert files["./usr/share/doc/nvidia-runfile/copyright"] == "-r--r--r--"
    unwanted = ("gtk", "GLX", "drv", "settings", "installer", "persistenced", "suspend", "32")
    assert [path for path in files if any(each in path for each in unwanted)] == []


def test_the_persistence_daemon_is_a_package_with_a_unit(bench: Workbench) -> None:
    files = files_of(bench.convert(), "nvidia-runfile-persistenced")

    assert sorted(files) == [
        "./usr/bin/nvidia-persistenced",
        "./usr/lib/systemd/system/nvidia-persistenced.service",
        "./usr/lib/sysusers.d/nvidia-runfile.conf",
    ]


def test_each_flavour_is_a_package_of_sources_for_dkms(bench: Workbench, tmp_path: Path) -> None:
    converted = bench.convert()

    assert converted.flavours == {Flavour.OPEN, Flavour.PROPRIETARY}
    digest = hashlib.sha256((tmp_path / "driver.run").read_bytes()).hexdigest()[:8]
    for name, dkms in (("nvidia-runfile-dkms", "nvidia-runfile"), ("nvidia-runfile-open-dkms", "nvidia-runfile-open")):
        tree = f"./usr/src/{dkms}-{digest}-{VERSION}"
        assert sorted(files_of(converted, name)) == [
            "./usr/lib/modprobe.d/nvidia-runfile.conf",
            *(f"{tree}/{file}" for file in ("Makefile", "dkms.conf", "nvidia/module.c")),
        ]
        target = tmp_path / name
        package = next(each for each in converted.packages if each.name == name)
        dpkg("--extract", str(converted.path(package)), str(target))
        configuration = (target / tree / "dkms.conf").read_text()
        assert f'PACKAGE_NAME="{dkms}-{digest}"' in configuration
        assert 'BUILT_MODULE_NAME[3]="nvidia-drm"' in configuration


def test_packages_exclude_those_of_distributions_and_stand_for_them(bench: Workbench) -> None:
    converted = bench.convert()

    user_space = field_of(converted, "nvidia-runfile", "Conflicts").split(", ")
    assert {"libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-alternative"} <= set(user_space)
    assert f"libcuda1 (= {VERSION})" in field_of(converted, "nvidia-runfile", "Provides").split(", ")
    module = field_of(converted, "nvidia-runfile-dkms", "Conflicts").split(", ")
    assert {"nvidia-kernel-dkms", "nvidia-open-kernel-dkms", "nvidia-runfile-open-dkms"} <= set(module)
    version = field_of(converted, "nvidia-runfile", "Version")
    assert field_of(converted, "nvidia-runfile-persistenced", "Depends") == f"nvidia-runfile (= {version})"


def test_two_files_of_one_driver_version_are_two_versions_of_the_packages(bench: Workbench) -> None:
    one, other = SmallDriver(VERSION), SmallDriver(VERSION)
    other.files["nvidia-smi"] += b"# of another maker\n"

    versions = {bench.convert(driver).packages[0].version for driver in (one, other)}

    assert len(versions) == 2
    assert all(version.startswith(f"{VERSION}-1+r") for version in versions)


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz"])
def test_what_is_made_depends_on_the_file_alone(bench: Workbench, tmp_path: Path, compression: str) -> None:
    declared = bench.write(SmallDriver(VERSION).content(compression))

    made = [RunfileStore(tmp_path / name).convert(declared).packages for name in ("here", "there")]

    assert made[0] == made[1]


@pytest.mark.skipif(shutil.which("zstd") is None, reason="this machine has no zstd, which drivers from 530 on need")
def test_newer_files_are_compressed_with_zstd(bench: Workbench) -> None:
    archive = subprocess.run(
        ["zstd", "-q", "-1"], input=SmallDriver(VERSION).archive(), check=True, capture_output=True
    )

    assert bench.store.convert(bench.write(as_runfile(archive.stdout))).driver_version == VERSION


def test_without_zstd_it_is_said_what_to_install(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bench.folder))

    assert "has no program of that name" in bench.refused(as_runfile(b"\x28\xb5\x2f\xfd" + bytes(64)))


def test_a_file_that_is_cut_within_zstd_is_refused(bench: Workbench) -> None:
    assert "driver.run" in bench.refused(as_runfile(b"\x28\xb5\x2f\xfd" + bytes(64)))


def test_the_script_of_the_file_is_never_run(bench: Workbench) -> None:
    bench.convert()

    assert not list(bench.folder.rglob("*.was-run"))


def cut(content: bytes) -> bytes:
    return content[:-200]


def changed(content: bytes) -> bytes:
    return content[:-100] + bytes([content[-100] ^ 0xFF]) + content[-99:]


@pytest.mark.parametrize("spoil", [cut, changed])
def test_any_other_file_than_the_declared_one_is_refused(bench: Workbench, spoil: Callable[[bytes], bytes]) -> None:
    content = bench_content()
    digest = hashlib.sha256(content).hexdigest()

    said = bench.refused(spoil(content), sha256=digest)

    assert f"and driver.runfile.sha256 is {digest}" in said


@pytest.mark.parametrize("compression", ["gzip", "xz", "bzip2"])
def test_a_cut_file_whose_digest_was_taken_as_it_is(bench: Workbench, compression: str) -> None:
    assert "cut or damaged" in bench.refused(cut(SmallDriver(VERSION).content(compression)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "is no runfile", id="an empty file"),
        pytest.param(b"\x7fELF" + bytes(200), "is no runfile", id="a program"),
        pytest.param(b"#!/bin/sh\necho hello\n", "is no runfile", id="some script"),
        pytest.param(b"#!/bin/sh\nskip=900\n", "ends before its archive", id="a script alone"),
        pytest.param(b"#!/bin/sh\nskip=3\nplain text" + bytes(99), "compressed in a way", id="no archive"),
    ],
)
def test_what_is_no_runfile_is_refused(bench: Workbench, content: bytes, said: str) -> None:
    assert said in bench.refused(content)


def of(**values: object) -> bytes:
    return SmallDriver(VERSION, **values).content()  # type: ignore[arg-type] # values of the case


def without(name: str) -> bytes:
    driver = SmallDriver(VERSION)
    del driver.files[name]
    return driver.content()


def with_line(line: str, **files: bytes) -> bytes:
    driver = SmallDriver(VERSION)
    driver.lines.append(line)
    driver.files |= files
    return driver.content()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(of(architecture="ppc64le"), "is for ppc64le", id="another architecture"),
        pytest.param(of(flavours=()), "lacks the sources of a kernel module", id="no module"),
        pytest.param(without("nvidia-smi"), "lists nvidia-smi (line ", id="a file that is listed and not there"),
        pytest.param(
            with_line("x/libcuda.so.1 0755 CUDA_LIB NATIVE /", **{"x/libcuda.so.1": b"x"}),
            "libcuda.so.1 is also that of line ",
            id="two files of one name",
        ),
        pytest.param(
            with_line("y 0755 CUDA_LIB NATIVE libcuda.so.1", y=b"y"),
            "libcuda.so.1 is a file by line ",
            id="a file in the place of a folder",
        ),
        pytest.param(with_line("../x 0755 UTILITY_BINARY"), "'../x' is no plain name", id="out of the tree"),
    ],
)
def test_a_driver_that_is_not_whole_is_refused(bench: Workbench, content: bytes, said: str) -> None:
    assert said in bench.refused(content)


def test_a_setuid_bit_is_kept_for_one_program_alone(bench: Workbench) -> None:
    driver = SmallDriver(VERSION)
    driver.add("nvidia-debugdump", "x", "4777", "UTILITY_BINARY")

    assert files_of(bench.convert(driver), "nvidia-runfile")["./usr/bin/nvidia-debugdump"] == "-rwxr-xr-x"


def test_files_of_a_guest_s_licence_daemon_come_along(bench: Workbench) -> None:
    driver = SmallDriver(VERSION)
    driver.add("nvidia-gridd", "x", "0755", "UTILITY_BINARY")
    driver.add("nvidia-gridd.service", "[Unit]\n", "0644", "SYSTEMD_UNIT")
    driver.add("gridd.conf.template", "x", "0644", "EXPLICIT_PATH", "/etc/nvidia")
    driver.add("elsewhere", "x", "0644", "EXPLICIT_PATH", "/etc/cron.d")

    files = files_of(bench.convert(driver), "nvidia-runfile")

    assert {"./usr/bin/nvidia-gridd", "./usr/lib/systemd/system/nvidia-gridd.service"} <= set(files)
    assert "./etc/nvidia/gridd.conf.template" in files
    assert not [path for path in files if "cron" in path]


def test_a_file_of_one_flavour_has_the_package_of_that_alone(bench: Workbench) -> None:
    converted = bench.convert(SmallDriver(VERSION, flavours=("proprietary",)))

    assert converted.flavours == {Flavour.PROPRIETARY}


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return as_runfile(gzip.compress(out.getvalue(), mtime=0))


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "./../x"])
def test_an_archive_that_leads_out_of_its_folder_is_refused(bench: Workbench, name: str) -> None:
    assert "leads out of its folder" in bench.refused(packed((member(name), b"x")))
    assert not (bench.folder / "x").exists()


def test_links_in_an_archive_are_neither_made_nor_followed(bench: Workbench) -> None:
    victim = bench.folder / "victim"
    victim.mkdir()
    content = packed(
        (member("kernel", tarfile.SYMTYPE, str(victim)), b""),
        (member("kernel/x"), b"x"),
        (member("second", tarfile.LNKTYPE, "kernel/x"), b""),
        (member("shadow", tarfile.LNKTYPE, "/etc/hostname"), b""),
        (member("null", tarfile.CHRTYPE), b""),
    )
    declared, target = bench.write(content), bench.folder / "unpacked"
    target.mkdir()

    unpack(bench.folder / "driver.run", declared.sha256, target)

    found = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
    assert found == ["kernel", "kernel/x", "second"]
    assert not any(victim.iterdir())


def test_an_archive_that_grows_without_end_is_given_up(bench: Workbench) -> None:
    declared = bench.write(bench_content())

    with pytest.raises(RunfileError, match="more than a driver can be"):
        unpack(bench.folder / "driver.run", declared.sha256, bench.folder, Limits(size_bytes=100))


def test_hard_links_count_as_the_copies_that_they_become(bench: Workbench) -> None:
    links = [(member(f"second-{number}", tarfile.LNKTYPE, "first"), b"") for number in range(20)]
    declared, target = bench.write(packed((member("first"), b"x" * 50), *links)), bench.folder / "unpacked"
    target.mkdir()
    with pytest.raises(RunfileError, match="more than a driver can be"):
        unpack(bench.folder / "driver.run", declared.sha256, target, Limits(size_bytes=500))
    assert sum(path.stat().st_size for path in target.iterdir()) <= 500


def test_a_fifo_is_no_runfile_and_keeps_nobody_waiting(bench: Workbench) -> None:
    os.mkfifo(bench.folder / "fifo")
    with pytest.raises(RunfileError, match="not a regular file"):
        unpack(bench.folder / "fifo", "0" * 64, bench.folder)
