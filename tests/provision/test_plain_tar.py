"""Archives whose headers lie: sizes, sparse files, nested and huge headers; both copies of the reader are the same."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.base import plain_tar
from provision.base.plain_tar import MAX_HEADER_BYTES, open_plain, plain_members

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
CONTENT = b"x" * 100


def archive(keys: Mapping[str, str] | None = None, content: bytes = CONTENT) -> bytes:
    """Return an archive of one file with a pax header."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as written:
        member = tarfile.TarInfo("file")
        member.size, member.pax_headers = len(content), dict(keys or {})
        written.addfile(member, io.BytesIO(content))
    return out.getvalue()


def block(kind: bytes, size: int | bytes, content: bytes = b"") -> bytes:
    """Return a header of a kind with any size, and what follows it."""
    member = tarfile.TarInfo("other")
    member.type, member.size = kind, size if isinstance(size, int) else 0
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    if isinstance(size, bytes):
        header[124:136] = size
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def read(data: bytes, mode: str) -> list[tuple[str, bytes]]:
    with open_plain(fileobj=io.BytesIO(data), mode=mode) as opened:
        found = []
        for member in plain_members(opened):
            stream = opened.extractfile(member)
            found.append((member.name, b"" if stream is None else stream.read()))
        return found


@pytest.mark.parametrize("mode", ["r:", "r|"])
def test_an_honest_archive_is_read(mode: str) -> None:
    long = "folder/" * 20 + "ü"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as written:
        for name in ("file", long):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(CONTENT), 1.5  # as `gettarinfo` has it
            written.addfile(member, io.BytesIO(CONTENT))
    assert read(out.getvalue(), mode) == [("file", CONTENT), (long, CONTENT)]


@pytest.mark.parametrize("mode", ["r:", "r|"])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(archive({"size": str(-(2**60))}), id="less than nothing"),
        pytest.param(archive({"size": "99999999"}), id="more than there is"),
        pytest.param(archive({"GNU.sparse.realsize": str(-(2**60))}), id="less than nothing, sparse"),
        pytest.param(archive({"GNU.sparse.map": "0,1", "GNU.sparse.size": "1000000000"}), id="sparse, by a map"),
        pytest.param(
            archive({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}, b"1\n0\n5\n"),
            id="sparse, by its content",
        ),
        pytest.param(archive({"size": "many"}), id="a size that is no number"),
        pytest.param(archive({"GRAPNEL.unknown": "1"}), id="a key that nobody knows"),
        pytest.param(block(tarfile.REGTYPE, b"\xff" * 12) + archive(), id="a negative size in the header itself"),
        pytest.param(block(tarfile.GNUTYPE_SPARSE, 512, CONTENT) + archive(), id="sparse, by its kind"),
        pytest.param(
            block(tarfile.GNUTYPE_LONGNAME, MAX_HEADER_BYTES + 1, b"n" * (MAX_HEADER_BYTES + 1)) + archive(),
            id="a name of megabytes",
        ),
        pytest.param(block(tarfile.GNUTYPE_LONGNAME, 2, b"n\0") * 3000 + archive(), id="headers of headers"),
    ],
)
def test_a_header_that_lies_is_refused_before_anything_is_read_behind_it(data: bytes, mode: str) -> None:
    """A size of less than nothing had switched the limits off: 13 kB became 859 MiB."""
    with pytest.raises(tarfile.TarError):
        read(data, mode)


def test_controller_and_nodes_have_the_same_reader() -> None:
    own = Path(plain_tar.__file__).read_text()
    assert (ROOT / "playbooks/plugins/module_utils/files/plain_tar.py").read_text() == own
