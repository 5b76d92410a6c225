"""Built modules are kept by content, whole or not at all, and believed only if they are what was written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from provision.builds.errors import ArchiveError, BuildsError
from provision.builds.shelf import Shelf
from tests.provision.builds.samples import OTHER_KERNEL, build_of, write_archive

if TYPE_CHECKING:
    from pathlib import Path

DAY_S = 86_400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "modules"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_kept_is_found_again_with_the_node_that_built_it(folder: Path, tmp_path: Path) -> None:
    kept = Shelf(folder).keep(build_of(), "n1", write_archive(tmp_path / "given"))

    assert Shelf(folder).find(build_of()) == kept
    assert (kept.node, kept.path.name) == ("n1", f"{kept.sha256}.tar.gz")
    assert names(folder) == sorted([f"{kept.sha256}.tar.gz", f"{build_of().key}.json"])
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "values",
    [
        {"version": "550.1"},
        {"flavour": "open"},
        {"dkms": "nvidia"},
        {"distribution": "debian-12"},
        {"architecture": "aarch64"},
        {"certificate": "/etc/key.der"},
        {"builder": "build1"},
    ],
    ids=lambda values: next(iter(values)),
)
def test_another_build_is_not_found(folder: Path, tmp_path: Path, values: dict[str, str]) -> None:
    Shelf(folder).keep(build_of(), "n1", write_archive(tmp_path / "given"))

    assert Shelf(folder).find(build_of(**values)) is None
    assert Shelf(folder).find(build_of(OTHER_KERNEL)) is None


def test_an_empty_shelf_makes_no_folder(folder: Path) -> None:
    assert Shelf(folder).find(build_of()) is None
    assert not folder.exists()


def test_what_was_changed_or_cut_since_is_not_used(folder: Path, tmp_path: Path) -> None:
    kept = Shelf(folder).keep(build_of(), "n1", write_archive(tmp_path / "given"))
    kept.path.write_bytes(kept.path.read_bytes()[:-1])
    assert Shelf(folder).find(build_of()) is None

    Shelf(folder).keep(build_of(), "n2", write_archive(tmp_path / "given"))
    found = Shelf(folder).find(build_of())
    assert found is not None
    assert found.node == "n2"


@pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, '{"sha256": "../../etc/passwd"}'])
def test_a_record_that_cannot_be_read_is_no_record(folder: Path, tmp_path: Path, text: str) -> None:
    Shelf(folder).keep(build_of(), "n1", write_archive(tmp_path / "given"))
    (folder / f"{build_of().key}.json").write_text(text)

    assert Shelf(folder).find(build_of()) is None


def test_a_refused_archive_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_bytes(b"no archive")

    with pytest.raises(ArchiveError):
        Shelf(folder).keep(build_of(), "n1", given)

    assert names(folder) == []


def test_a_kill_before_the_record_is_written_leaves_what_counts_for_nothing(folder: Path, tmp_path: Path) -> None:
    kept = Shelf(folder).keep(build_of(), "n1", write_archive(tmp_path / "given"))
    (folder / f"{build_of().key}.json").unlink()
    (folder / ".partial-x").mkdir()
    assert Shelf(folder).find(build_of()) is None

    Shelf(folder).prune(kept.path.stat().st_mtime + 2 * DAY_S)

    assert names(folder) == []


def test_pruning_keeps_what_is_used_and_what_is_being_written(folder: Path, tmp_path: Path) -> None:
    kept = Shelf(folder).keep(build_of(), "n1", write_archive(tmp_path / "given"))
    (folder / ".partial-x").mkdir()
    (folder / f"{'a' * 64}.tar.gz").write_bytes(b"another run is about to write its record")

    Shelf(folder).prune(kept.path.stat().st_mtime + 1)

    assert len(names(folder)) == 4


def test_the_oldest_go_when_there_is_too_much(folder: Path, tmp_path: Path) -> None:
    shelf = Shelf(folder)
    old = shelf.keep(build_of(), "n1", write_archive(tmp_path / "given"))
    os.utime(folder / f"{build_of().key}.json", (1, 1))
    os.utime(old.path, (1, 1))
    new = shelf.keep(build_of(OTHER_KERNEL), "n1", write_archive(tmp_path / "new", _for(OTHER_KERNEL)))

    shelf.prune(DAY_S * 3, new.size_bytes + 1)

    assert shelf.find(build_of()) is None
    assert shelf.find(build_of(OTHER_KERNEL)) == new


def _for(kernel: str) -> dict[str, bytes]:
    return {
        "./dkms_binaries_only/PACKAGE_NAME": b"nvidia-current\n",
        "./dkms_binaries_only/PACKAGE_VERSION": b"550.163.01\n",
        f"./dkms_main_tree/{kernel}/x86_64/module/nvidia-current.ko": b"another",
    }


def test_a_folder_that_others_could_write_to_is_not_used(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.parent.mkdir()
    folder.symlink_to(elsewhere)

    with pytest.raises(BuildsError, match="is a link"):
        Shelf(folder).keep(build_of(), "n1", write_archive(tmp_path / "given"))


def test_a_disk_without_space_is_told_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildsError, match="cannot be kept") as caught:
        Shelf(tmp_path / "file" / "modules").keep(build_of(), "n1", write_archive(tmp_path / "given"))
    assert "XDG_CACHE_HOME" in caught.value.hint
