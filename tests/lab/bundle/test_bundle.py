"""A package folder, made of packages that are built here: what apt needs is there and the signature holds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab import trees
from lab.bundle import CONTENTS, FOR_DEMO, Bundle, folder, install
from lab.bundle.contents import DEMO
from lab.bundle.folder import Package
from lab.bundle.repository import publish
from lab.machine.errors import PackageError

PACKAGES = (("libnvidia-ml1", "550.163.01-2"), ("libnvidia-ml1", "535.309.01-0+deb12u1"), ("tool", "1:2.0-1"))


def build_package(folder: Path, name: str, version: str) -> None:
    tree = folder.parent / f"tree-{name}-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: a <a@b.invalid>\nDescription: d\n"
    (tree / "DEBIAN" / "control").write_text(control)
    deb = folder / f"{name}_{version.replace(':', '%3a')}_all.deb"
    subprocess.run(["dpkg-deb", "--build", tree, deb], check=True, capture_output=True)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle") / "debs"
    folder.mkdir()
    for name, version in PACKAGES:
        build_package(folder, name, version)
    publish(folder, "trixie", folder.parent / "key")
    return Bundle("trixie", folder)


@pytest.mark.slow
def test_the_index_lists_every_package_with_its_file(bundle: Bundle) -> None:
    packages = bundle.packages()
    assert sorted((package.name, package.version) for package in packages) == sorted(PACKAGES)
    assert all(package.path.is_file() for package in packages)


@pytest.mark.slow
def test_a_suite_with_a_component_names_its_files_from_the_root_on(tmp_path: Path) -> None:
    folder = tmp_path / "root/dists/noble"
    folder.mkdir(parents=True)
    build_package(folder, *PACKAGES[0])
    publish(folder, "noble", tmp_path / "key", "stable")
    release, index = ((folder / name).read_text() for name in ("Release", "stable/binary-amd64/Packages"))
    assert " stable/binary-amd64/Packages\n" in release
    (line,) = [line for line in index.splitlines() if line.startswith("Filename: ")]
    assert (folder.parents[1] / line.removeprefix("Filename: ")).is_file()
    assert {"Components: stable", "Codename: noble"} <= {*release.splitlines()}


@pytest.mark.slow
def test_driver_versions_are_upstreams_and_in_order(bundle: Bundle) -> None:
    assert bundle.driver_versions() == ["535.309.01", "550.163.01"]


def test_a_package_is_found_by_name_or_by_version(bundle: Bundle) -> None:
    assert bundle.find("tool").path.name == "tool_1%3a2.0-1_all.deb"
    assert bundle.find("libnvidia-ml1=550.163.01-2").upstream_version == "550.163.01"


@pytest.mark.parametrize(
    ("wanted", "versions"),
    [
        pytest.param("nothing", "versions: none", id="unknown"),
        pytest.param("libnvidia-ml1", "550.163.01-2", id="two versions and none asked for"),
        pytest.param("tool=9", "versions: none", id="a version that is not there"),
    ],
)
def test_what_is_not_exactly_one_package_is_refused(bundle: Bundle, wanted: str, versions: str) -> None:
    with pytest.raises(PackageError, match=versions):
        bundle.find(wanted)


@pytest.mark.parametrize(
    ("version", "upstream"),
    [("550.163.01-2", "550.163.01"), ("1:2.0-1", "2.0"), ("20240109+1", "20240109+1"), ("1-2-3", "1-2")],
)
def test_upstream_version_is_without_epoch_and_revision(tmp_path: Path, version: str, upstream: str) -> None:
    assert Package("p", version, tmp_path).upstream_version == upstream


def test_the_signature_holds_until_a_byte_changes(bundle: Bundle, tmp_path: Path) -> None:
    keyring = tmp_path / "key.gpg"
    subprocess.run(["gpg", "--dearmor", "-o", keyring, bundle.public_key], check=True, capture_output=True)
    signed = bundle.folder / "InRelease"
    verify = ["gpgv", "--keyring", str(keyring)]
    assert subprocess.run([*verify, signed], capture_output=True, check=False).returncode == 0
    changed = tmp_path / "InRelease"
    changed.write_text(signed.read_text().replace("grapnel-lab", "grapnel-lob", 1))
    assert subprocess.run([*verify, changed], capture_output=True, check=False).returncode != 0


def test_an_initramfs_has_no_modules_to_pack(tmp_path: Path) -> None:
    install.keep_initramfs_small(tmp_path)

    assert (tmp_path / "etc/initramfs-tools/conf.d/lab").read_text() == "MODULES=list\n"


def test_the_demo_downloads_a_part_unless_everything_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []

    def build(*given: object) -> None:
        *_, place, requests = given
        Path(str(place)).mkdir(parents=True)
        built.append(requests)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(trees, "ensure", lambda suite: tmp_path / suite)
    monkeypatch.setattr(folder, "_build", build)

    monkeypatch.setenv(FOR_DEMO, "1")
    part = folder.ensure("trixie")
    monkeypatch.delenv(FOR_DEMO)
    whole = folder.ensure("trixie")
    monkeypatch.setenv(FOR_DEMO, "1")

    assert part.folder != whole.folder == folder.ensure("trixie").folder
    assert built == [DEMO, CONTENTS["trixie"]]
