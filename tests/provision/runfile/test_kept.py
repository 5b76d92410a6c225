"""What becomes of the packages that were made of a runfile: they are kept, made again, or given up, and why."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from lab.runfile import SmallDriver
from provision.declaration.spec.model import Runfile
from provision.planning.supply.runfile.errors import RunfileError
from provision.planning.supply.runfile.store import KEPT
from tests.provision.runfile.workbench import bench_content

if TYPE_CHECKING:
    from tests.provision.runfile.workbench import Workbench


def test_a_file_is_converted_once_and_needed_no_more(bench: Workbench) -> None:
    declared = bench.write(bench_content())
    made = bench.store.convert(declared)
    (bench.folder / "driver.run").unlink()

    assert bench.store.convert(declared).packages == made.packages


def test_a_kept_package_that_has_changed_is_made_again(bench: Workbench) -> None:
    declared = bench.write(bench_content())
    made = bench.store.convert(declared)
    made.path(made.packages[0]).write_bytes(b"something else")

    again = bench.store.convert(declared)

    assert again.packages == made.packages
    assert again.path(again.packages[0]).read_bytes().startswith(b"!<arch>\n")


def test_what_a_killed_conversion_left_is_gone_after_the_next(bench: Workbench) -> None:
    left = bench.folder / "cache" / ".partial-x"
    left.mkdir(parents=True)
    (left / "unpacked").write_text("a part")

    bench.convert()

    assert not left.exists()


def test_conversions_that_nobody_uses_go(bench: Workbench) -> None:
    for number in range(KEPT + 2):
        bench.convert(SmallDriver(f"550.54.{10 + number}", flavours=("open",)))

    kept = [path for path in (bench.folder / "cache").iterdir() if path.is_dir()]
    assert len(kept) == KEPT


def test_a_cache_that_is_a_link_is_not_used(bench: Workbench) -> None:
    (bench.folder / "elsewhere").mkdir()
    (bench.folder / "cache").symlink_to(bench.folder / "elsewhere")

    with pytest.raises(RunfileError, match="is a link, or belongs to somebody else"):
        bench.convert()


def test_a_file_that_is_not_there_is_named(bench: Workbench) -> None:
    with pytest.raises(RunfileError, match=r"/nowhere/x\.run: no such file or directory"):
        bench.store.convert(Runfile(path="/nowhere/x.run", sha256="0" * 64))


@pytest.mark.functional
@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system of its own is mounted by root alone")
def test_a_full_disk_is_said_with_what_to_do(bench: Workbench) -> None:
    small = bench.folder / "cache"
    small.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=0700", "tmpfs", str(small)], check=True)
    try:
        with pytest.raises(RunfileError, match="no space left on device") as caught:
            bench.convert()
        assert "make room" in caught.value.hint
        assert [path.name for path in small.iterdir()] == [".lock"]
    finally:
        subprocess.run(["umount", str(small)], check=True)
