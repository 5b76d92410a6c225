"""Built modules are kept by content, whole or not at all, and believed only if they are what was written."""

from __future__ import annotations

import lzma
import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.planning.supply.builds.errors import ArchiveError, BuildsError
from provision.planning.supply.builds.shelf import Shelf
from tests.provision.builds.samples import MEMBERS, MODULE, OTHER_KERNEL, build_of, write_archive

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from provision.planning.supply.builds.model import BuiltModule, ModuleBuild

DAY_S = 86_400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "modules"


def keep(
    folder: Path, tmp_path: Path, build: ModuleBuild | None = None, members: Mapping[str, bytes] = MEMBERS
) -> BuiltModule:
    """Have two nodes give the same; return what may be handed on since then."""
    build = build or build_of()
    for node in ("n1", "n2"):
        Shelf(folder).keep(build, node, write_archive(tmp_path / "given", members))
    found = Shelf(folder).find(build)
    assert found is not None
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_two_nodes_have_built_alike_is_found_again_with_both(folder: Path, tmp_path: Path) -> None:
    kept = keep(folder, tmp_path)

    assert Shelf(folder).find(build_of()) == kept
    assert (kept.nodes, kept.path.name) == (("n1", "n2"), f"{kept.sha256}.tar.gz")
    assert [name for name in names(folder) if name.endswith(".gz")] == [f"{kept.sha256}.tar.gz"]
    assert len(names(folder)) == 3
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_one_node_has_built_is_not_handed_on(folder: Path, tmp_path: Path) -> None:
    for _ in range(2):
        Shelf(folder).keep(build_of(), "n1", write_archive(tmp_path / "given"))

    assert Shelf(folder).find(build_of()) is None
    assert [answer.node for answer in Shelf(folder).standing(build_of()).given] == ["n1"]


def test_what_a_declared_builder_has_built_is_handed_on_by_its_word(folder: Path, tmp_path: Path) -> None:
    build = build_of(builder="n1")
    Shelf(folder).keep(build, "n1", write_archive(tmp_path / "given"))

    found = Shelf(folder).find(build)
    assert found is not None
    assert found.nodes == ("n1",)


def test_two_that_differ_are_named_and_a_third_changes_nothing(folder: Path, tmp_path: Path) -> None:
    shelf = Shelf(folder)
    shelf.keep(build_of(), "n1", write_archive(tmp_path / "given", {**MEMBERS, MODULE: lzma.compress(b"evil")}))
    for node in ("n2", "n3"):
        shelf.keep(build_of(), node, write_archive(tmp_path / "given"))

    assert shelf.find(build_of()) is None
    difference = shelf.standing(build_of()).difference
    assert difference is not None
    assert "n1" in difference.nodes
    assert difference.files == ("nvidia-current.ko",)


def test_one_machine_under_two_names_is_one_word(folder: Path, tmp_path: Path) -> None:
    shelf = Shelf(folder)
    for node, machine in (("n1", ["id 1", "at 10.0.0.1:22"]), ("n2", ["id 2", "at 10.0.0.1:22"])):
        shelf.keep(build_of(), node, write_archive(tmp_path / "given"), machine)
    assert shelf.find(build_of()) is None

    shelf.keep(build_of(), "n3", write_archive(tmp_path / "given"), ["id 3", "at 10.0.0.3:22"])

    found = shelf.find(build_of())
    assert found is not None
    assert "n3" in found.nodes


def test_what_a_release_before_kept_by_one_nodes_word_is_not_handed_on(folder: Path, tmp_path: Path) -> None:
    kept = keep(folder, tmp_path)
    for path in folder.glob("*.json"):
        path.unlink()
    record = {"schema": "grapnel.dev/built-module/v1alpha1", "node": "n1", "sha256": kept.sha256}
    former = msgspec.json.encode({**record, "build": msgspec.to_builtins(build_of())})
    for name in (f"{build_of().key}.json", f"{build_of().key}-{'0' * 16}.json"):
        (folder / name).write_bytes(former)

    assert Shelf(folder).find(build_of()) is None
    assert Shelf(folder).standing(build_of()).answers == ()


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
    keep(folder, tmp_path)

    assert Shelf(folder).find(build_of(**values)) is None
    assert Shelf(folder).find(build_of(OTHER_KERNEL)) is None


def test_an_empty_shelf_makes_no_folder(folder: Path) -> None:
    assert Shelf(folder).find(build_of()) is None
    assert not folder.exists()


def test_what_was_changed_or_cut_since_is_not_used(folder: Path, tmp_path: Path) -> None:
    kept = keep(folder, tmp_path)
    kept.path.write_bytes(kept.path.read_bytes()[:-1])
    assert Shelf(folder).find(build_of()) is None

    assert keep(folder, tmp_path) == kept


@pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, '{"sha256": "../../etc/passwd"}'])
def test_a_record_that_cannot_be_read_is_no_record(folder: Path, tmp_path: Path, text: str) -> None:
    keep(folder, tmp_path)
    next(folder.glob("*.json")).write_text(text)

    assert Shelf(folder).find(build_of()) is None


def test_a_refused_archive_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_bytes(b"no archive")

    with pytest.raises(ArchiveError):
        Shelf(folder).keep(build_of(), "n1", given)

    assert names(folder) == []


def test_a_kill_before_the_record_is_written_leaves_what_counts_for_nothing(folder: Path, tmp_path: Path) -> None:
    kept = keep(folder, tmp_path)
    for path in folder.glob("*.json"):
        path.unlink()
    (folder / ".partial-x").mkdir()
    assert Shelf(folder).find(build_of()) is None

    Shelf(folder).prune(kept.path.stat().st_mtime + 2 * DAY_S)

    assert names(folder) == []


def test_pruning_keeps_what_is_used_and_what_is_being_written(folder: Path, tmp_path: Path) -> None:
    kept = keep(folder, tmp_path)
    (folder / ".partial-x").mkdir()
    (folder / f"{'a' * 64}.tar.gz").write_bytes(b"another run is about to write its record")

    Shelf(folder).prune(kept.path.stat().st_mtime + 1)

    assert len(names(folder)) == 5


def test_the_oldest_go_when_there_is_too_much(folder: Path, tmp_path: Path) -> None:
    shelf = Shelf(folder)
    old = keep(folder, tmp_path)
    for path in (*folder.glob("*.json"), old.path):
        os.utime(path, (1, 1))
    new = keep(folder, tmp_path, build_of(OTHER_KERNEL), _for(OTHER_KERNEL))

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
