"""What a node gives as its built module is written again on the controller, and nothing else of it gets through."""

from __future__ import annotations

import gzip
import tarfile
from typing import TYPE_CHECKING

import pytest

from provision.planning.supply.builds.archive import rewrite_archive
from provision.planning.supply.builds.errors import ArchiveError
from tests.provision.builds.samples import (
    CONTENT,
    KERNEL,
    MEMBERS,
    MODULE,
    OTHER_KERNEL,
    TREE,
    build_of,
    member,
    read_archive,
    write_archive,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BINARIES = "./dkms_binaries_only"


def refused(tmp_path: Path, source: Path) -> str:
    with pytest.raises(ArchiveError) as caught:
        rewrite_archive(source, tmp_path / "out", build_of())
    return caught.value.message


def without(*names: str) -> dict[str, bytes]:
    return {name: data for name, data in MEMBERS.items() if name not in names}


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_the_modules_are_handed_on_and_nothing_that_dkms_would_run(tmp_path: Path, format_: int) -> None:
    source = write_archive(tmp_path / "given", format_=format_)

    rewrite_archive(source, tmp_path / "out", build_of())

    written = read_archive(tmp_path / "out")
    assert sorted(written) == [
        f"{BINARIES}/PACKAGE_NAME",
        f"{BINARIES}/PACKAGE_VERSION",
        f"{BINARIES}/dkms.conf",
        f"{TREE}/module/nvidia-current-uvm.ko.xz",
        MODULE,
    ]
    assert written[MODULE] == CONTENT
    assert written[f"{BINARIES}/PACKAGE_NAME"] == b"nvidia-current\n"
    assert written[f"{BINARIES}/dkms.conf"].decode().splitlines() == [
        'PACKAGE_NAME="nvidia-current"',
        'PACKAGE_VERSION="550.163.01"',
        'BUILT_MODULE_NAME[0]="nvidia-current-uvm"',
        'DEST_MODULE_LOCATION[0]="/updates/dkms"',
        'BUILT_MODULE_NAME[1]="nvidia-current"',
        'DEST_MODULE_LOCATION[1]="/updates/dkms"',
    ]


def test_equal_modules_give_equal_archives(tmp_path: Path) -> None:
    first, second = write_archive(tmp_path / "a"), write_archive(tmp_path / "b", format_=tarfile.PAX_FORMAT)

    assert rewrite_archive(first, tmp_path / "c", build_of()) == rewrite_archive(second, tmp_path / "d", build_of())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param(member(f"{TREE}/module/evil.ko", tarfile.SYMTYPE, "/etc/shadow"), "neither a file", id="symlink"),
        pytest.param(member(f"{TREE}/module/evil.ko", tarfile.LNKTYPE, MODULE), "neither a file", id="hard link"),
        pytest.param(member(f"{TREE}/module/evil.ko", tarfile.CHRTYPE), "neither a file", id="device"),
        pytest.param(member(f"{TREE}/module/evil.ko", tarfile.FIFOTYPE), "neither a file", id="pipe"),
        pytest.param(member(f"{TREE}/module/evil.ko", tarfile.GNUTYPE_SPARSE), "neither a file", id="sparse file"),
        pytest.param(member("x", tarfile.XGLTYPE), "neither a file", id="header for all files"),
    ],
)
def test_only_plain_files_are_taken(tmp_path: Path, more: tarfile.TarInfo, words: str) -> None:
    assert words in refused(tmp_path, write_archive(tmp_path / "given", MEMBERS, more))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        pytest.param({"/etc/cron.d/x": b"x"}, "/etc/cron.d/x in it leads elsewhere", id="absolute path"),
        pytest.param({f"{TREE}/module/../../../../x.ko": b"x"}, "leads elsewhere", id="parent folder"),
        pytest.param({"./dkms_source_tree/dkms.conf": b"x"}, "does not belong to built modules", id="source tree"),
        pytest.param({f"{TREE}/module/sub/x.ko": b"x"}, "does not belong to built modules", id="deeper"),
        pytest.param({f"{BINARIES}/postinst": b"x"}, "does not belong to built modules", id="a script"),
        pytest.param({f"{TREE}/module/run.sh": b"x"}, "is no kernel module", id="not a module"),
        pytest.param({f"{TREE}/other/x.ko": b"x"}, "is no kernel module", id="another folder"),
        pytest.param({f'{TREE}/module/x".ko': b"x"}, "is no kernel module", id="a name with a quote"),
        pytest.param(
            {f"./dkms_main_tree/{OTHER_KERNEL}/x86_64/module/x.ko": b"x"},
            f"it has files for the kernel {OTHER_KERNEL} (x86_64), not {KERNEL} (x86_64) alone",
            id="another kernel",
        ),
        pytest.param({f"./dkms_main_tree/{KERNEL}/aarch64/module/x.ko": b"x"}, "(aarch64)", id="another architecture"),
        pytest.param({f"dkms_main_tree/{KERNEL}/x86_64/module/nvidia-current.ko.xz": b"x"}, "twice", id="twice"),
        pytest.param({f"{BINARIES}/PACKAGE_NAME": b"other\n"}, "of the DKMS module other", id="another DKMS module"),
        pytest.param({f"{BINARIES}/PACKAGE_VERSION": b'1"; rm -rf /\n'}, "does not say which version", id="shell text"),
        pytest.param({f"{BINARIES}/PACKAGE_VERSION": b"1" * 5000}, "does not say which version", id="a giant version"),
        pytest.param({f"x\x1b[2J{'a' * 300}": b""}, "\\x1b", id="a name for the terminal"),
    ],
)
def test_files_other_than_modules_of_the_kernel_are_refused(
    tmp_path: Path, members: Mapping[str, bytes], words: str
) -> None:
    message = refused(tmp_path, write_archive(tmp_path / "given", {**MEMBERS, **members}))
    assert words in message
    assert "\x1b" not in message


def test_an_archive_without_a_module_is_refused(tmp_path: Path) -> None:
    given = without(MODULE, f"{TREE}/module/nvidia-current-uvm.ko.xz")
    assert "has no kernel module" in refused(tmp_path, write_archive(tmp_path / "given", given))


def test_a_file_that_unpacks_endlessly_is_refused_by_its_header(tmp_path: Path) -> None:
    giant = member(f"{TREE}/module/giant.ko", tarfile.REGTYPE)
    giant.size = 1 << 40
    assert "unpacks to more" in refused(tmp_path, write_archive(tmp_path / "given", MEMBERS, giant))


def test_a_name_that_fills_the_memory_is_refused_by_its_header(tmp_path: Path) -> None:
    header = member("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    header.size = 1 << 33
    assert "a name that is too long" in refused(tmp_path, write_archive(tmp_path / "given", MEMBERS, header))


def test_headers_within_headers_come_to_an_end(tmp_path: Path) -> None:
    nested = [member(f"h{index}", tarfile.XHDTYPE) for index in range(5000)]
    assert "was refused" in refused(tmp_path, write_archive(tmp_path / "given", MEMBERS, *nested))


def test_folders_without_end_are_refused(tmp_path: Path) -> None:
    folders = [member(f"./f{index}", tarfile.DIRTYPE) for index in range(1500)]
    assert "unpacks to more" in refused(tmp_path, write_archive(tmp_path / "given", {}, *folders))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"#!/bin/sh\n", id="no archive"),
        pytest.param(gzip.compress(b"\x00" * 10_000), id="zeros"),
        pytest.param(gzip.compress(b"rubbish" * 1000), id="no tar"),
    ],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    source = tmp_path / "given"
    source.write_bytes(data)
    assert "was refused" in refused(tmp_path, source)


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    source = write_archive(tmp_path / "given", {**MEMBERS, f"{TREE}/module/big.ko": bytes(range(256)) * 4000})
    source.write_bytes(source.read_bytes()[:-2000])
    assert "was refused" in refused(tmp_path, source)
