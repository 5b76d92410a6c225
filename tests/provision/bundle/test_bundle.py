"""Bundles: written from staged sets, carried, checked before anything is used, and chosen from for a node."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.planning.driver_change import DriverChange, PackageVersion
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.handover import choose_files
from provision.planning.supply.bundle.model import BundleList
from provision.planning.supply.bundle.read import open_unpacked, unpack_bundle, verify_bundle
from provision.planning.supply.bundle.sets import Contents, StagedSet
from provision.planning.supply.bundle.write import write_bundle

if TYPE_CHECKING:
    from collections.abc import Callable

KERNEL = "6.12.117+deb13-amd64"
NEW = "550.163.01"
DEBIAN = "debian-13"


def change_of(version: str = NEW, *, kernels: tuple[str, ...] = (KERNEL,), revision: str = "-2") -> DriverChange:
    """The change that the staged set of these tests is for."""
    return DriverChange(
        version=version,
        flavour="proprietary",
        manager="apt",
        packages=(PackageVersion("libcuda1", f"{version}{revision}"),),
        kernels=kernels,
        dkms="nvidia-current",
    )


def headers(version: str) -> list[dict[str, object]]:
    """What the package files of the set say of themselves."""
    return [
        {
            "file": f"libcuda1_{version}-2_amd64.deb",
            "name": "libcuda1",
            "version": f"{version}-2",
            "source": "nvidia-graphics-drivers",
            "depends": ["libpci3"],
        },
        {
            "file": "libpci3_1%3a3.13.0-2_amd64.deb",
            "name": "libpci3",
            "version": "1:3.13.0-2",
            "source": "pciutils",
            "depends": [],
        },
    ]


def staged_set(folder: Path, change: DriverChange, **more: str) -> StagedSet:
    """A folder as a node has staged it."""
    files = {
        "change.json": msgspec.json.encode(change).decode(),
        f"packages/libcuda1_{change.version}-2_amd64.deb": f"libcuda1 {change.version}",
        "packages/libpci3_1%3a3.13.0-2_amd64.deb": "libpci3",
        "packages.json": json.dumps(headers(change.version)),
        "before/change.json": "{}",
        **{f"modules/{kernel}.tar.gz": f"{change.version} {kernel}" for kernel in change.kernels},
        **more,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    (folder / "complete").write_text(json.dumps(digests))
    return StagedSet(DEBIAN, folder)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A bundle of one staged set and a payload."""
    payload = tmp_path / "payload"
    payload.mkdir()
    (payload / "manifest.json").write_text("{}")
    contents = Contents()
    contents.add_set(staged_set(tmp_path / "set", change_of()))
    listing = contents.listing("0.2.0", payload=contents.add_folder("payload", payload))
    write_bundle(tmp_path / "drivers.bundle", contents.sources, listing)
    return tmp_path / "drivers.bundle"


def test_a_bundle_lists_every_file_with_its_digest(archive: Path) -> None:
    listing = verify_bundle(archive)

    assert [file.place for file in listing.files] == [
        f"drivers/{DEBIAN}/modules/proprietary/nvidia-current-{NEW}/{KERNEL}.tar.gz",
        f"drivers/{DEBIAN}/packages/libcuda1_{NEW}-2_amd64.deb",
        f"drivers/{DEBIAN}/packages/libpci3_1%3a3.13.0-2_amd64.deb",
        "payload/manifest.json",
    ]
    assert [(one.name, one.version, one.source, one.depends) for one in listing.drivers[0].packages] == [
        ("libcuda1", f"{NEW}-2", "nvidia-graphics-drivers", ("libpci3",)),
        ("libpci3", "1:3.13.0-2", "pciutils", ()),
    ]
    assert (listing.payload, listing.collection) == ("payload", "")


def test_equal_content_gives_equal_bytes(archive: Path, tmp_path: Path) -> None:
    contents = Contents()
    contents.add_set(staged_set(tmp_path / "again", change_of()))
    payload = contents.add_folder("payload", tmp_path / "payload")
    write_bundle(tmp_path / "again.bundle", contents.sources, contents.listing("0.2.0", payload=payload))

    assert (tmp_path / "again.bundle").read_bytes() == archive.read_bytes()


def test_unpacked_files_are_as_they_were(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian 12's Python 3.11.2 has no filters to extract by, and bundles could not be unpacked there."""
    monkeypatch.delattr(tarfile.TarFile, "extract")
    monkeypatch.delattr(tarfile.TarFile, "extractall")
    bundle = unpack_bundle(archive, tmp_path / "unpacked")

    place = f"drivers/{DEBIAN}/packages/libcuda1_{NEW}-2_amd64.deb"
    assert bundle.path(place).read_text() == f"libcuda1 {NEW}"
    assert open_unpacked(tmp_path / "unpacked").listing == bundle.listing


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    return data.replace(b"libcuda1 550", b"libcuda1 551")


def drop_the_last_file(data: bytes) -> bytes:
    """Cut right between two files, which tar takes for the end."""
    return data[: data.index(b"payload/manifest.json", data.index(b"libcuda1 550"))]


def not_a_bundle(_: bytes) -> bytes:
    return b"PK\x03\x04" + b"\0" * 2000


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        pytest.param(flip, f"packages/libcuda1_{NEW}-2_amd64.deb at byte", id="a changed byte"),
        pytest.param(cut, "", id="cut in the middle"),
        pytest.param(drop_the_last_file, "payload/manifest.json and 0 more files are missing", id="cut after a file"),
        pytest.param(not_a_bundle, "is not a bundle", id="another file"),
        pytest.param(lambda _: b"", "is not a bundle", id="empty"),
    ],
)
def test_a_damaged_bundle_is_refused_and_leaves_nothing(
    archive: Path, tmp_path: Path, damage: Callable[[bytes], bytes], words: str
) -> None:
    archive.write_bytes(damage(archive.read_bytes()))

    for use in (lambda: verify_bundle(archive), lambda: unpack_bundle(archive, tmp_path / "unpacked")):
        with pytest.raises(BundleError) as raised:
            use()
        assert str(archive) in raised.value.message
        assert words in raised.value.message
        assert raised.value.hint

    assert not [path for path in tmp_path.iterdir() if "unpacked" in path.name]


def test_a_missing_bundle_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such file"):
        verify_bundle(tmp_path / "none")


def test_an_unpacked_file_that_changed_is_noticed(archive: Path, tmp_path: Path) -> None:
    bundle = unpack_bundle(archive, tmp_path / "unpacked")
    bundle.path(bundle.listing.files[1].place).write_text("changed")

    with pytest.raises(BundleError, match="not as the bundle's list says"):
        unpack_bundle(archive, tmp_path / "unpacked")


@pytest.mark.parametrize("place", ["../up", "/etc/passwd", "a/../b", "a//b", ".hidden", ""])
def test_a_place_that_leads_elsewhere_is_no_place(place: str) -> None:
    file = {"place": place, "sha256": "0" * 64, "size_bytes": 1}
    document = {"schema": "grapnel.dev/bundle/v1alpha1", "grapnel": "0.2.0", "files": [file], "drivers": []}

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(document, BundleList)


def test_a_set_that_is_not_as_the_node_sealed_it_is_refused(tmp_path: Path) -> None:
    staged = staged_set(tmp_path / "set", change_of())
    (staged.folder / f"modules/{KERNEL}.tar.gz").write_text("changed")

    with pytest.raises(BundleError, match="not as the node sealed it"):
        Contents().add_set(staged)


def test_sets_of_two_nodes_for_one_driver_come_together(tmp_path: Path) -> None:
    contents = Contents()
    contents.add_set(staged_set(tmp_path / "a", change_of()))
    contents.add_set(staged_set(tmp_path / "b", change_of(kernels=("6.1.0-amd64",))))

    (driver,) = contents.listing("0.2.0").drivers

    assert [one.kernel for one in driver.modules] == ["6.1.0-amd64", KERNEL]
    assert len(driver.packages) == 2


def test_two_files_of_one_name_that_differ_are_refused(tmp_path: Path) -> None:
    contents = Contents()
    contents.add_set(staged_set(tmp_path / "a", change_of()))

    with pytest.raises(BundleError, match="have one place in the bundle"):
        contents.add_set(
            staged_set(tmp_path / "b", change_of(), **{f"packages/libcuda1_{NEW}-2_amd64.deb": "another build"})
        )


def test_a_node_gets_what_its_change_names(archive: Path, tmp_path: Path) -> None:
    bundle = unpack_bundle(archive, tmp_path / "unpacked")

    handover = choose_files(bundle, DEBIAN, change_of())

    assert {file.place for file in handover.files} == {
        f"packages/libcuda1_{NEW}-2_amd64.deb",
        "packages/libpci3_1%3a3.13.0-2_amd64.deb",
        f"modules/{KERNEL}.tar.gz",
    }
    listed = json.loads(handover.list_text())
    for file in handover.files:
        assert listed[file.place] == hashlib.sha256(file.source.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("distribution", "change", "words"),
    [
        pytest.param(
            "debian-12", change_of(), "has no driver 550.163.01 (proprietary) for debian-12; it has none", id="os"
        ),
        pytest.param(DEBIAN, change_of("535.1"), f"it has {NEW} (proprietary)", id="version"),
        pytest.param(DEBIAN, change_of(revision="-3"), f"lacks packages for {DEBIAN}: libcuda1 {NEW}-3", id="package"),
    ],
)
def test_what_a_bundle_lacks_is_named(
    archive: Path, tmp_path: Path, distribution: str, change: DriverChange, words: str
) -> None:
    bundle = unpack_bundle(archive, tmp_path / "unpacked")

    with pytest.raises(BundleError) as raised:
        choose_files(bundle, distribution, change)

    assert words in raised.value.message


def test_a_kernel_without_a_module_is_left_to_the_node(archive: Path, tmp_path: Path) -> None:
    bundle = unpack_bundle(archive, tmp_path / "unpacked")

    handover = choose_files(bundle, DEBIAN, change_of(kernels=("6.99.0-amd64",)))

    assert not [file for file in handover.files if file.place.startswith("modules/")]


def test_a_package_beside_the_drivers_is_sent_where_it_is_lacking(archive: Path, tmp_path: Path) -> None:
    handover = choose_files(unpack_bundle(archive, tmp_path / "unpacked"), DEBIAN, change_of())

    described = {file.place: file.package for file in handover.files}

    assert described == {
        f"modules/{KERNEL}.tar.gz": None,
        f"packages/libcuda1_{NEW}-2_amd64.deb": None,
        "packages/libpci3_1%3a3.13.0-2_amd64.deb": ("libpci3", "1:3.13.0-2"),
    }


def test_an_engine_is_one_package_of_its_set(tmp_path: Path) -> None:
    contents, staged = Contents(), staged_set(tmp_path / "set", change_of())

    contents.add_engine(staged, "libcuda1")

    (engine,) = contents.listing("0.2.0").engines
    assert (engine.distribution, engine.package, engine.version) == (DEBIAN, "libcuda1", f"{NEW}-2")
    assert [one.place for one in engine.packages] == [
        f"engines/{DEBIAN}/packages/libcuda1_{NEW}-2_amd64.deb",
        f"engines/{DEBIAN}/packages/libpci3_1%3a3.13.0-2_amd64.deb",
    ]
    assert contents.listing("0.2.0").drivers == ()
    with pytest.raises(BundleError, match="has no containerd"):
        contents.add_engine(staged, "containerd")


@pytest.mark.parametrize("kind", ["drivers", "engines"])
def test_a_package_that_is_used_and_not_listed_is_an_error_of_the_list(tmp_path: Path, kind: str) -> None:
    """Whoever made the list: a node that is handed the package would have no digest to check it by."""
    contents = Contents()
    contents.add_set(staged_set(tmp_path / "set", change_of()))
    contents.add_engine(staged_set(tmp_path / "other", change_of()), "libcuda1")
    lost = f"{kind}/{DEBIAN}/packages/libpci3_1%3a3.13.0-2_amd64.deb"
    sources = {place: source for place, source in contents.sources.items() if place != lost}
    write_bundle(tmp_path / "short.bundle", sources, contents.listing("0.2.0"))

    with pytest.raises(BundleError, match="is used and not listed"):
        verify_bundle(tmp_path / "short.bundle")


def unsealed(folder: Path) -> None:
    (folder / "complete").write_text(json.dumps({"../../etc/hostname": "0" * 64}))


def linked(folder: Path) -> None:
    place = folder / f"packages/libcuda1_{NEW}-2_amd64.deb"
    place.rename(folder.parent / "elsewhere")
    place.symlink_to(folder.parent / "elsewhere")


def undescribed(folder: Path) -> None:
    reseal(folder, "packages.json", json.dumps(headers(NEW)[:1]))


def of_an_older_program(folder: Path) -> None:
    reseal(folder, "packages.json", None)


def reseal(folder: Path, place: str, text: str | None) -> None:
    digests = json.loads((folder / "complete").read_text())
    del digests[place]
    (folder / place).unlink()
    if text is not None:
        (folder / place).write_text(text)
        digests[place] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "complete").write_text(json.dumps(digests))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(unsealed, "complete: ", id="a place outside"),
        pytest.param(linked, "is a link", id="a link"),
        pytest.param(undescribed, "does not describe packages/libpci3", id="a package without a description"),
        pytest.param(of_an_older_program, "does not say what its packages need", id="no descriptions"),
    ],
)
def test_a_set_that_is_not_as_a_node_makes_it_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    staged = staged_set(tmp_path / "set", change_of())
    spoil(staged.folder)

    with pytest.raises(BundleError, match=words):
        Contents().add_set(staged)


def test_samples_of_the_contract() -> None:
    contract = Path(__file__).parents[3] / "docs/contracts/bundle"
    for path in (contract / "good").glob("*.json"):
        msgspec.json.decode(path.read_bytes(), type=BundleList)
    bad = list((contract / "bad").glob("*.json"))
    assert bad
    for path in bad:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(path.read_bytes(), type=BundleList)
