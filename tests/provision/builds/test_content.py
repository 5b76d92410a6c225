"""Builds of two nodes are compared by what the compiler made: not by who signed it, nor by how it is packed."""

from __future__ import annotations

import gzip
import lzma
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

from provision.planning.supply.builds.archive import rewrite_archive
from provision.planning.supply.builds.errors import ArchiveError, BuildsError
from tests.provision.builds.samples import MEMBERS, MODULE, TREE, build_of, write_archive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CODE = b"\x7fELF" + bytes(range(256)) * 40
NAME = "nvidia-current.ko"


def signed(code: bytes, signature: bytes = b"s" * 60, *, kind: int = 2, claims: int | None = None) -> bytes:
    """Return a module with an appended signature, as ``sign-file`` writes it."""
    size = len(signature) if claims is None else claims
    return code + signature + struct.pack(">BBBBB3xI", 0, 0, kind, 0, 0, size) + b"~Module signature appended~\n"


def content_of(tmp_path: Path, member: str, data: bytes) -> str:
    """Return the digest of the module in an archive that has it under another name of its file."""
    members = {name: given for name, given in MEMBERS.items() if name != MODULE} | {f"{TREE}/module/{member}": data}
    _, content = rewrite_archive(write_archive(tmp_path / "given", members), tmp_path / "out", build_of())
    return content[NAME]


def test_two_nodes_with_keys_of_their_own_have_built_the_same(tmp_path: Path) -> None:
    plain = content_of(tmp_path, NAME, CODE)

    assert content_of(tmp_path, NAME, signed(CODE, b"n1" * 200)) == plain
    assert content_of(tmp_path, NAME, signed(CODE, b"n2" * 300)) == plain


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress], ids=["xz", "gz"])
def test_how_it_is_packed_does_not_count(tmp_path: Path, pack: object, request: pytest.FixtureRequest) -> None:
    packed = pack(signed(CODE))  # type: ignore[operator] # a function
    suffix = request.node.callspec.id

    assert content_of(tmp_path, f"{NAME}.{suffix}", packed) == content_of(tmp_path, NAME, CODE)


@pytest.mark.skipif(shutil.which("zstd") is None, reason="this machine has no zstd")
def test_what_is_packed_with_zstd_is_unpacked_by_it(tmp_path: Path) -> None:
    done = subprocess.run(["zstd", "-q", "-c"], input=signed(CODE), stdout=subprocess.PIPE, check=True)

    assert content_of(tmp_path, f"{NAME}.zst", done.stdout) == content_of(tmp_path, NAME, CODE)
    with pytest.raises(ArchiveError, match="is not compressed with zstd"):
        content_of(tmp_path, f"{NAME}.zst", b"rubbish")


def test_without_zstd_nothing_is_compared_and_it_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildsError, match="no program of that name to compare it with") as caught:
        content_of(tmp_path, f"{NAME}.zst", b"")
    assert "install zstd" in caught.value.hint


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(CODE[:-1] + b"x", id="one byte of code"),
        pytest.param(signed(CODE[:-1] + b"x"), id="one byte of signed code"),
        pytest.param(signed(CODE, claims=61), id="a signature that takes a byte of the code"),
        pytest.param(signed(CODE, claims=1 << 30), id="a signature larger than the file"),
        pytest.param(signed(CODE, kind=1), id="what the kernel takes for no signature"),
        pytest.param(signed(signed(CODE)), id="two signatures"),
        pytest.param(CODE + b"more", id="bytes at the end"),
    ],
)
def test_everything_but_one_signature_counts(tmp_path: Path, other: bytes) -> None:
    assert content_of(tmp_path, NAME, other) != content_of(tmp_path, NAME, CODE)


def test_what_dkms_is_told_counts(tmp_path: Path) -> None:
    told = {"./dkms_binaries_only/PACKAGE_VERSION": b"550.163.02\n"}
    one, other = (
        rewrite_archive(write_archive(tmp_path / "given", members), tmp_path / "out", build_of())[1]
        for members in (MEMBERS, {**MEMBERS, **told})
    )
    assert {name for name in one if one[name] != other[name]} == {"PACKAGE_VERSION", "dkms.conf"}


def test_a_module_is_not_hidden_behind_another_way_of_packing_it(tmp_path: Path) -> None:
    twice = {**MEMBERS, f"{TREE}/module/nvidia-current.ko.gz": gzip.compress(b"evil")}
    with pytest.raises(ArchiveError, match="is in it twice"):
        rewrite_archive(write_archive(tmp_path / "given", twice), tmp_path / "out", build_of())


def test_what_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.planning.supply.builds.content._MAX_BYTES", 1 << 20)
    with pytest.raises(ArchiveError, match="unpacks to more"):
        content_of(tmp_path, f"{NAME}.xz", lzma.compress(bytes(2 << 20)))


def test_what_a_declared_builder_gives_is_compared_with_nothing(tmp_path: Path) -> None:
    build = build_of(builder="build1")
    rubbish = {**MEMBERS, MODULE: b"not even packed"}
    assert rewrite_archive(write_archive(tmp_path / "given", rubbish), tmp_path / "out", build)[1] == {}


def test_a_module_does_not_say_how_much_of_the_controllers_memory_it_takes(tmp_path: Path) -> None:
    """A file of some kilobytes with a dictionary of 700 MiB ended the controller, whose pod has 512 MiB."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 160 << 20, "mode": lzma.MODE_FAST}]
    packed = lzma.compress(CODE, lzma.FORMAT_XZ, filters=filters)

    with pytest.raises(ArchiveError, match="limit"):
        content_of(tmp_path, f"{NAME}.xz", packed)


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress], ids=["xz", "gz"])
def test_nothing_stands_behind_a_packed_module(
    tmp_path: Path, pack: Callable[[bytes], bytes], request: pytest.FixtureRequest
) -> None:
    """What follows the first stream is unpacked by some programs and left out by others."""
    with pytest.raises(ArchiveError, match="something follows"):
        content_of(tmp_path, f"{NAME}.{request.node.callspec.id}", pack(CODE) + b"more")


def test_an_archive_is_no_train_of_empty_ones(tmp_path: Path) -> None:
    """256 MiB of empty streams took a minute of the controller's time before anything of them was read."""
    given = tmp_path / "given"
    given.write_bytes(gzip.compress(b"", mtime=0) * 1000)

    with pytest.raises(ArchiveError, match="something follows"):
        rewrite_archive(given, tmp_path / "out", build_of())
