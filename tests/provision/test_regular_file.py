"""Files that somebody named: none of them makes a command hang, or fills the memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.base.regular_file import read_regular
from provision.cluster.errors import KubeconfigError, StateFileError
from provision.cluster.kubernetes.api.kubeconfig import read_kubeconfig
from provision.cluster.local.state_file import read_state
from provision.declaration.spec.errors import DeclarationError
from provision.declaration.spec.load import load_declaration
from provision.planning.supply.payload.errors import PayloadError
from provision.planning.supply.payload.store import MANIFEST, read_manifest

if TYPE_CHECKING:
    from provision.base.errors import GrapnelError

Reader = Callable[[Path], object]


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


UNFIT: dict[str, tuple[Callable[[Path], None], str]] = {
    "a FIFO": (os.mkfifo, "not a regular file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "a folder": (Path.mkdir, "is a directory"),
}
READERS: dict[str, tuple[Reader, type[GrapnelError]]] = {
    "declaration": (load_declaration, DeclarationError),
    "manifest": (lambda path: read_manifest(path.parent), PayloadError),
    "state file": (read_state, StateFileError),
    "kubeconfig": (lambda path: read_kubeconfig([path], None), KubeconfigError),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / MANIFEST


@pytest.mark.parametrize(("reader", "error"), READERS.values(), ids=READERS)
@pytest.mark.parametrize(("make", "reason"), UNFIT.values(), ids=UNFIT)
def test_what_is_no_regular_file_is_told_at_once(
    make: Callable[[Path], None], reason: str, reader: Reader, error: type[GrapnelError], path: Path
) -> None:
    make(path)

    with pytest.raises(error, match=f"(?i){reason}") as raised:
        reader(path)
    assert str(path) in raised.value.message


@pytest.mark.parametrize(("reader", "error"), list(READERS.values())[1:], ids=list(READERS)[1:])
def test_a_huge_file_is_not_read_to_its_end(reader: Reader, error: type[GrapnelError], path: Path) -> None:
    make_huge(path)

    with pytest.raises(error, match=r"larger than \d+ bytes"):
        reader(path)


def test_a_huge_declaration_is_a_finding(path: Path) -> None:
    make_huge(path)

    with pytest.raises(DeclarationError) as raised:
        load_declaration(path)
    assert [each.message for each in raised.value.findings] == ["is larger than 256 KiB"]


def test_a_declaration_that_a_program_writes_comes_with_what_to_do(path: Path) -> None:
    os.mkfifo(path)

    with pytest.raises(DeclarationError) as raised:
        load_declaration(path)
    assert raised.value.hint == "save the output of a program to a file first"


def test_a_file_of_just_that_size_is_read(path: Path) -> None:
    path.write_bytes(b"12345")

    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than"):
        read_regular(path, 4)
