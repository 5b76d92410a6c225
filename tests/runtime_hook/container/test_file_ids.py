"""Whose files the hook makes: every id that the kernel knows, also those that are negative as a C ``int``."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from runtime_hook.container.libc import as_id, set_file_ids
from tests.runtime_hook.containers import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

MAKE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from runtime_hook.container import libc
libc.keep_capabilities()
libc.set_file_ids(int(sys.argv[3]), int(sys.argv[4]))
os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))
libc.set_file_ids(0, 0)
os.close(os.open(sys.argv[2] + ".after", os.O_CREAT | os.O_EXCL))
"""


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (0, 0),
        (200_000, 200_000),
        (2**31 - 1, 2**31 - 1),
        (-(2**31), 2**31),
        (-2_101_870_592, 2_193_096_704),
        (-2, 2**32 - 2),
    ],
)
def test_an_id_from_2_to_the_31_on_is_read_as_what_it_is(result: int, found: int) -> None:
    assert as_id(result) == found


@pytest.mark.parametrize(("uid", "gid"), [(2**32 - 1, 0), (0, 2**32 - 1), (-1, 0), (0, -1), (2**32, 0), (0, 2**32)])
def test_what_is_no_id_is_refused_before_anything_is_changed(uid: int, gid: int) -> None:
    with pytest.raises(OSError, match=f"user {uid} or group {gid}"):
        set_file_ids(uid, gid)


@pytest.mark.functional
@pytest.mark.parametrize(
    ("uid", "gid"),
    [(1, 2), (2**31 - 1, 2**31), (2**31, 2**31 - 1), (2_193_096_704, 2_193_096_704), (2**32 - 2, 2**32 - 2)],
)
def test_the_kernel_makes_files_with_every_id(tmp_path: Path, uid: int, gid: int) -> None:
    made = tmp_path / "file"
    argv = [sys.executable, "-c", MAKE, str(REPOSITORY), str(made), str(uid), str(gid)]
    subprocess.run(argv, check=True)

    assert (made.stat().st_uid, made.stat().st_gid) == (uid, gid)
    after = made.with_name("file.after").stat()
    assert (after.st_uid, after.st_gid) == (0, 0)
