"""Archives of built modules: what they hold is read from the modules themselves."""

from __future__ import annotations

import gzip
import io
import lzma
import struct
import tarfile
from typing import TYPE_CHECKING

import pytest

from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.module_archive import BuiltModules, read_module_archive
from provision.planning.supply.bundle.sets import Contents
from tests.provision.builds.samples import member, write_archive
from tests.provision.bundle.test_bundle import DEBIAN, KERNEL, NEW, change_of, staged_set

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODULES = f"./dkms_main_tree/{KERNEL}/x86_64/module"


def module(**fields: str) -> bytes:
    """An object file of 64 bits with two sections: names of sections, and a module's fields."""
    said = {"version": NEW, "license": "NVIDIA", "vermagic": f"{KERNEL} SMP preempt mod_unload", **fields}
    modinfo = b"".join(f"{key}={value}\0".encode() for key, value in said.items() if value)
    names = b"\0.shstrtab\0.modinfo\0"
    sections = [(1, 64, len(names)), (11, 64 + len(names), len(modinfo))]
    table = 64 + len(names) + len(modinfo)
    header = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<Q10xHHH", table, 64, len(sections), 0)
    return header + names + modinfo + b"".join(struct.pack("<I20xQQ24x", *one) for one in sections)


def write(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return path


def archive(path: Path, **modules: bytes) -> Path:
    """An archive as dkms writes it, with modules by their names."""
    named = {f"{MODULES}/{name.replace('__', '.')}": data for name, data in modules.items()}
    return write(path, {"./dkms_binaries_only/PACKAGE_NAME": b"nvidia-current\n", **named})


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("ko", bytes), ("ko__xz", lzma.compress), ("ko__gz", gzip.compress)],
    ids=["plain", "xz", "gzip"],
)
def test_modules_say_what_they_are(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    drm = module(license="Dual MIT/GPL")
    path = archive(tmp_path / "a.tar.gz", **{f"nvidia__{suffix}": pack(module()), f"drm__{suffix}": pack(drm)})

    assert read_module_archive(path) == BuiltModules(path, "nvidia-current", NEW, "proprietary", KERNEL)


def test_open_modules_are_told_by_their_license(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", nvidia__ko=module(license="Dual MIT/GPL"))

    assert read_module_archive(path).flavour == "open"


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        pytest.param({}, "has no modules of DKMS", id="nothing"),
        pytest.param({"a__ko": module(vermagic="6.1.0 SMP")}, "are for different kernels: 6.1.0, ", id="kernel"),
        pytest.param({"a__ko": module(), "b__ko": module(version="1.2")}, "no single version: 1.2, ", id="versions"),
        pytest.param({"a__ko": module(version="")}, "no single version: none", id="no version"),
        pytest.param({"a__ko": b"rubbish"}, "is no kernel module", id="no module"),
        pytest.param({"a__ko": module()[:70]}, "is no kernel module", id="a module that is cut"),
        pytest.param({"a__ko__xz": module()}, "cannot be read", id="not packed as its name says"),
        pytest.param({"a__ko__zst": module()}, "zstd, which cannot be looked into", id="zstd"),
    ],
)
def test_a_wrong_archive_is_refused_with_the_reason(tmp_path: Path, modules: dict[str, bytes], words: str) -> None:
    path = archive(tmp_path / "a.tar.gz", **modules)

    with pytest.raises(BundleError) as raised:
        read_module_archive(path)

    assert words in raised.value.message
    assert str(path) in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize(
    ("name", "kind", "size", "words"),
    [
        pytest.param(f"{MODULES}/evil.ko", tarfile.SYMTYPE, 0, "neither a file nor a folder", id="symlink"),
        pytest.param(f"{MODULES}/evil.ko", tarfile.GNUTYPE_SPARSE, 0, "neither a file nor a folder", id="sparse file"),
        pytest.param(f"{MODULES}/../../../../evil.ko", tarfile.REGTYPE, 0, "leads elsewhere", id="parent folder"),
        pytest.param("./dkms_source_tree/x.ko", tarfile.REGTYPE, 0, "does not belong to built modules", id="sources"),
        pytest.param("./dkms_main_tree/\x1b[2J/x86_64/module/x.ko", tarfile.REGTYPE, 0, "\\x1b", id="terminal"),
        pytest.param(f"{MODULES}/giant.ko", tarfile.REGTYPE, 1 << 40, "unpacks to more", id="a giant file"),
        pytest.param("././@LongLink", tarfile.GNUTYPE_LONGNAME, 1 << 33, "a name that is too long", id="a giant name"),
    ],
)
def test_an_archive_that_somebody_hostile_wrote_is_refused(
    tmp_path: Path, name: str, kind: bytes, size: int, words: str
) -> None:
    header = member(name, kind)
    header.size = size

    with pytest.raises(BundleError) as raised:
        read_module_archive(write_archive(tmp_path / "a.tar.gz", {}, header))

    assert words in raised.value.message
    assert "\x1b" not in raised.value.message


def test_a_file_that_is_no_archive_or_cut_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", nvidia__ko=module())
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    (tmp_path / "b").write_text("rubbish")

    for wrong in (path, tmp_path / "b", tmp_path / "absent"):
        with pytest.raises(BundleError, match="cannot be read"):
            read_module_archive(wrong)


def test_built_modules_join_the_driver_that_they_belong_to(tmp_path: Path) -> None:
    contents = Contents()
    contents.add_set(staged_set(tmp_path / "set", change_of(kernels=("6.1.0-amd64",))))

    contents.add_modules(DEBIAN, read_module_archive(archive(tmp_path / "a.tar.gz", nvidia__ko=module())))

    (driver,) = contents.listing("0.2.0").drivers
    assert [one.kernel for one in driver.modules] == ["6.1.0-amd64", KERNEL]


def test_built_modules_without_their_driver_are_refused(tmp_path: Path) -> None:
    contents = Contents()
    contents.add_set(staged_set(tmp_path / "set", change_of("535.309.01")))

    with pytest.raises(BundleError, match=f"driver {NEW} \\(proprietary\\), which is not in the bundle for {DEBIAN}"):
        contents.add_modules(DEBIAN, read_module_archive(archive(tmp_path / "a.tar.gz", nvidia__ko=module())))
