"""CUDA forward compatibility: NVIDIA's decision from the library's note, and the names that come first."""

from __future__ import annotations

import struct
import subprocess
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_hook.container.compatfolder import TreeFolder
from runtime_hook.host.hosttree import HostTree
from runtime_hook.loader.cache import LoaderCache
from runtime_hook.loader.compat import (
    CompatNote,
    HostDriver,
    decide,
    examine,
    parse_compat_note,
    parse_version,
    read_compat_note,
)
from runtime_hook.loader.platforms import PLATFORMS
from tests.runtime_hook.elfmaker import AARCH64, I386, SHT_NOTE, Elf, Section, note

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runtime_hook.loader.elf import ReadAt

T = TypeVar("T")
PLATFORM = PLATFORMS["x86_64"]
BRANCHES = (535, 550, 560, 565, 570, 575)
# As libcuda.so.575.57.08 of cuda-compat-12-9 says it (in the test data of NVIDIA's container toolkit).
PUBLISHED = (
    b"""{"format":1,"CUDA version":"12.9","driver":[535,550,560,565,570,575],"device":[1,2,7,8,9,10,11,12,13,14]}"""
)
OWNER = b"NVIDIA Corporation"
NAME = ".note.cuda.fwd_compatibility"


def with_note(data: bytes, alignment: int = 4, owner: bytes = OWNER, section: str = NAME, machine: int = 62) -> bytes:
    sections = (Section(section, SHT_NOTE, note(owner, data, alignment=alignment), alignment),)
    return Elf("libcuda.so.1", machine, sections=sections).build()


LIBCUDA = with_note(PUBLISHED)


def reader(data: bytes) -> ReadAt:
    return lambda length, offset: data[offset : offset + length]


class Folder:
    """An image's folder in memory: files are bytes, links text."""

    path = "/usr/local/cuda/compat"

    def __init__(self, content: dict[str, bytes | str]) -> None:
        self._content = content

    def names(self, limit: int) -> list[str] | None:
        return list(self._content) if len(self._content) <= limit else None

    def link(self, name: str) -> str | None:
        found = self._content[name]
        return found if isinstance(found, str) else None

    def inspect(self, name: str, look: Callable[[ReadAt], T]) -> T | None:
        found = self._content[name]
        return look(reader(found)) if isinstance(found, bytes) else None


CUDA_12_9: dict[str, bytes | str] = {
    "libcuda.so": "libcuda.so.1",
    "libcuda.so.1": "libcuda.so.575.57.08",
    "libcuda.so.575.57.08": LIBCUDA,
    "libcudadebugger.so.1": "libcudadebugger.so.575.57.08",
    "libcudadebugger.so.575.57.08": Elf("libcudadebugger.so.1").build(),
    "libnvidia-nvvm.so": "libnvidia-nvvm.so.4",
    "libnvidia-nvvm.so.4": "libnvidia-nvvm.so.575.57.08",
    "libnvidia-nvvm.so.575.57.08": Elf("libnvidia-nvvm.so.4").build(),
    "libnvidia-gpucomp.so.575.57.08": Elf().build(),
    "libnvidia-unlinked.so.575.57.08": Elf("libnvidia-unlinked.so.1").build(),
    "libnvidia-old.so.1": Elf("libnvidia-old.so.1", I386).build(),
    "libnvidia-elsewhere.so.1": "/etc/shadow",
    "libloop.so.1": "libloop.so.1",
    "README": b"text",
}
FOUND = {
    "libcuda.so": "libcuda.so",
    "libcuda.so.1": "libcuda.so.1",
    "libcudadebugger.so.1": "libcudadebugger.so.1",
    "libnvidia-gpucomp.so.575.57.08": "libnvidia-gpucomp.so.575.57.08",
    "libnvidia-nvvm.so": "libnvidia-nvvm.so",
    "libnvidia-nvvm.so.4": "libnvidia-nvvm.so.4",
    "libnvidia-unlinked.so.1": "libnvidia-unlinked.so.575.57.08",
}
OLDER = HostDriver("550.163.01", "12.4")


def test_all_libraries_of_the_folder_come_first() -> None:
    compat = examine(Folder(CUDA_12_9), OLDER, PLATFORM)
    assert compat.is_used
    assert {entry.name: entry.path.rpartition("/")[2] for entry in compat.entries} == FOUND
    assert {entry.path.rpartition("/")[0] for entry in compat.entries} == {"/usr/local/cuda/compat"}
    assert {entry.flags for entry in compat.entries} == {PLATFORM.cache_flags}


def test_a_note_as_published_has_its_library_used_on_a_branch_that_it_lists() -> None:
    compat = examine(Folder({"libcuda.so.575.57.08": with_note(PUBLISHED)}), OLDER, PLATFORM)
    assert compat.is_used
    assert compat.reason == "compat 575.57.08 on driver 550.163.01: its note lists branch 550, versions compared"


@pytest.mark.parametrize("link", ["libcuda.so.575.57", "libcuda.so.1.1", "libcuda.so.12.9"])
def test_links_beside_the_library_are_no_candidates_of_their_own(link: str) -> None:
    compat = examine(Folder({**CUDA_12_9, link: "libcuda.so.575.57.08"}), OLDER, PLATFORM)
    assert compat.is_used
    assert {entry.name for entry in compat.entries} == FOUND.keys()


def test_ldconfig_lists_the_same_names_for_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "usr/local/cuda/compat"
    folder.mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.conf").write_text("/usr/local/cuda/compat\n")
    for name, content in CUDA_12_9.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).symlink_to(content)
    compat = examine(TreeFolder(HostTree(str(tmp_path)), "/usr/local/cuda/compat"), OLDER, PLATFORM)
    subprocess.run(["/sbin/ldconfig", "-r", str(tmp_path)], check=True, capture_output=True)
    listed = LoaderCache((tmp_path / "etc/ld.so.cache").read_bytes()).entries()
    assert {entry.name for entry in compat.entries} == FOUND.keys()
    assert {entry.name for entry in listed if entry.flags == PLATFORM.cache_flags} == FOUND.keys()


NOTE = CompatNote("12.9", BRANCHES)


@pytest.mark.parametrize(
    ("found", "compat", "driver", "cuda", "is_used"),
    [
        pytest.param(NOTE, "575.57.08", "570.211.01", "", True, id="an older branch that is listed"),
        pytest.param(NOTE, "575.57.08", "575.10.10", "", True, id="the same branch, older"),
        pytest.param(NOTE, "575.57.08", "575.57.08", "", False, id="the same driver"),
        pytest.param(NOTE, "575.57.08", "575.99.99", "", False, id="the same branch, newer"),
        pytest.param(NOTE, "575.57.08", "590.44.01", "", False, id="a newer branch that is not listed"),
        pytest.param(NOTE, "575.57.08", "555.42.06", "", False, id="an older branch that is not listed"),
        pytest.param(NOTE, "575.57.08", "570.211.01", "99.0", True, id="with both drivers CUDA versions do not count"),
        pytest.param(NOTE, "1.1", "", "12.8", True, id="without a driver version CUDA versions decide"),
        pytest.param(NOTE, "1.1", "", "12.9", False, id="equal CUDA versions"),
        pytest.param(NOTE, "1.1", "", "12.10", False, id="CUDA versions are numbers"),
        pytest.param(NOTE, "one", "550.1", "", False, id="an invalid version"),
        pytest.param(CompatNote("", ()), "575.57.08", "550.163.01", "12.4", False, id="a note without branches"),
        pytest.param(None, "575.57.08", "550.163.01", "", True, id="no note, a newer branch"),
        pytest.param(None, "550.200", "550.163.01", "", False, id="no note, the same branch"),
        pytest.param(None, "575.57.08", "", "12.4", False, id="no note and no driver version"),
    ],
)
def test_the_decision_is_nvidias(
    *, found: CompatNote | None, compat: str, driver: str, cuda: str, is_used: bool
) -> None:
    decision, reason = decide(found, compat, HostDriver(driver, cuda))
    assert decision == is_used
    assert reason


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(LIBCUDA, NOTE, id="aligned to 4 bytes"),
        pytest.param(with_note(PUBLISHED, alignment=8), NOTE, id="aligned to 8 bytes"),
        pytest.param(with_note(b'{"format":1,"CUDA version":"13.2"}'), CompatNote("13.2", ()), id="Orin's, no drivers"),
        pytest.param(with_note(b'{"CUDA version":"13.2","driver":null}'), CompatNote("13.2", ()), id="drivers null"),
        pytest.param(
            with_note(b'{"CUDA Version":"12.9","Driver":[550]}'), CompatNote("12.9", (550,)), id="keys in capitals"
        ),
        pytest.param(
            with_note(b'{"cuda VERSION":"12.9","DRIVER":[550]}'), CompatNote("12.9", (550,)), id="keys in any case"
        ),
        pytest.param(with_note(b'{"driver":[true,550]}'), None, id="a branch that is no number"),
        pytest.param(with_note(b'{"driver":["560"]}'), None, id="a branch as text"),
        pytest.param(with_note(b'{"driver":[1.5]}'), None, id="a fraction of a branch"),
        pytest.param(with_note(b'{"driver":{"550":1}}'), None, id="branches that are no list"),
        pytest.param(with_note(b"{"), None, id="not JSON"),
        pytest.param(with_note(b"[1]"), None, id="not an object"),
        pytest.param(with_note(b'{"CUDA version":13}'), None, id="a version that is no text"),
        pytest.param(with_note(b"[" * 60000), None, id="too deep"),
        pytest.param(with_note(b"{}", owner=b"GNU"), None, id="of another owner"),
        pytest.param(with_note(b"{}", section=".note.other"), None, id="in another section"),
        pytest.param(Elf("libcuda.so.1").build(), None, id="no sections"),
        pytest.param(b"", None, id="an empty file"),
    ],
)
def test_a_note_is_read_or_is_none(data: bytes, expected: CompatNote | None) -> None:
    assert parse_compat_note(read_compat_note(reader(data))) == expected


def test_a_note_that_says_it_is_longer_than_its_section_is_cut() -> None:
    """Orin's library has such a note; NVIDIA's parser once ran over the end."""
    whole = note(OWNER, PUBLISHED)
    longer = struct.pack("<III", 19, 1 << 31, 1) + whole[12:]
    data = Elf("libcuda.so.1", sections=(Section(NAME, SHT_NOTE, longer),)).build()
    assert parse_compat_note(read_compat_note(reader(data))) == NOTE


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param({}, "0 libcuda", id="an empty folder"),
        pytest.param({"libcuda.so.1": LIBCUDA}, "0 libcuda", id="no version in the name"),
        pytest.param({**CUDA_12_9, "libcuda.so.560.1": LIBCUDA}, "2 libcuda", id="two versions"),
        pytest.param({"libcuda.so.575.1": "/etc/passwd"}, "0 libcuda", id="a link out"),
        pytest.param({"libcuda.so.575.1": b"text"}, "no library of this machine", id="not ELF"),
        pytest.param(
            {"libcuda.so.575.1": with_note(b"{}", machine=AARCH64)}, "no library of this machine", id="other machine"
        ),
        pytest.param({f"lib{n}.so": LIBCUDA for n in range(200)}, "more than 128 names", id="a crowd"),
        pytest.param({"libcuda.so.575.\n1": LIBCUDA, "libcuda.so.5\xff.1": LIBCUDA}, "0 libcuda", id="odd names"),
    ],
)
def test_what_is_odd_leaves_the_hosts_driver(content: dict[str, bytes | str], reason: str) -> None:
    compat = examine(Folder(content), OLDER, PLATFORM)
    assert not compat.is_used
    assert compat.entries == ()
    assert reason in compat.reason


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("575.57.08", (575, 57, 8)),
        ("575", (575, 0, 0)),
        ("12.10", (12, 10, 0)),
        ("1.2.3.4", ()),
        ("1..2", ()),
        ("", ()),
        ("\u0661.2", ()),
        ("9" * 5000, ()),
    ],
)
def test_versions_are_up_to_three_numbers(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_whatever_bytes_are_changed_the_library_is_read_in_bounds(data: st.DataObject) -> None:
    library = bytearray(LIBCUDA)
    for place in data.draw(st.lists(st.integers(0, len(library) - 4), max_size=6)):
        library[place : place + 4] = data.draw(st.sampled_from([b"\xff" * 4, bytes(4), b"\0\0\0\x80", b"\x01\0\0\0"]))
    read_bytes = 0

    def read_at(length: int, offset: int) -> bytes:
        nonlocal read_bytes
        if offset >= 1 << 63:
            raise OverflowError("as os.pread")
        read_bytes += length
        return bytes(library[offset : offset + length])

    found = parse_compat_note(read_compat_note(read_at))
    assert found is None or isinstance(found, CompatNote)
    assert read_bytes <= 64 + 1024 * 64 + 2 * (1 << 16)
