"""Archives are the same bytes for the same sources, hold what belongs in them, and run."""

from __future__ import annotations

import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from provision.planning.supply.payload.build import build_payload
from provision.planning.supply.payload.errors import PayloadError
from provision.planning.supply.payload.sources import Sources, find_sources
from provision.planning.supply.payload.store import load_payload
from tests.provision.payload.checkouts import make_checkout, write

TIMEOUT_S = 60


@dataclass
class FakeLibraries:
    """Libraries that are a few files, and a note of who asked for them."""

    folder: Path
    asked: list[str] = field(default_factory=list)

    def site(self, python: str) -> Path:
        self.asked.append(python)
        site = self.folder / python
        tag = python.replace(".", "")
        for name in (
            "grpc/__init__.py",
            "grpc/cygrpc.pyi",
            "grpc/tests/test_all.py",
            "grpc/__pycache__/__init__.pyc",
            "grpcio-1.dist-info/METADATA",
            "grpcio-1.dist-info/RECORD",
            "bin/protoc",
            "example.py",
            "yaml/__init__.py",
            "yaml/cyaml.py",
            f"yaml/_yaml.cpython-{tag}.so",
            "_yaml/__init__.py",
        ):
            write(site / name, f"{name} for {python}")
        return site


@pytest.fixture
def checkout(tmp_path: Path) -> Sources:
    return find_sources(make_checkout(tmp_path / "checkout"))


@pytest.fixture
def libraries(tmp_path: Path) -> FakeLibraries:
    return FakeLibraries(tmp_path / "libraries")


def run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout


def names(archive: str) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def test_the_archives_hold_what_runs_and_nothing_else(
    checkout: Sources, libraries: FakeLibraries, tmp_path: Path
) -> None:
    build_payload(tmp_path / "out", checkout, libraries)

    payload = load_payload(tmp_path / "out")
    assert names(payload.hook.path) == [
        "grapnel-hook",
        "grapnel-runtime",
        "runtime_hook",
        "runtime_hook/__init__.py",
        "runtime_hook/cli.py",
        "systemd",
        "systemd/grapnel-inventory.path",
        "systemd/grapnel-inventory.service",
    ]
    package = "ansible_collections/grapnel/node/plugins/module_utils"
    assert names(payload.driver.path)[5:] == [
        f"{package}/driver",
        f"{package}/driver/program.py",
        f"{package}/host.py",
        "grapnel-driver",
    ]
    assert names(payload.node.path) == [
        "grapnel-node",
        "plugin",
        "plugin/__init__.py",
        "plugin/cli.py",
        "plugin/kubelet",
        "plugin/kubelet/__init__.py",
        "site",
        "site/grpc",
        "site/grpc/__init__.py",
        "site/grpcio-1.dist-info",
        "site/grpcio-1.dist-info/METADATA",
        "site/yaml",
        "site/yaml/__init__.py",
    ]
    assert libraries.asked == [payload.node.python] == ["3.10"]
    assert payload.unit == "[Service]\n"


def test_a_library_that_is_compiled_is_refused(checkout: Sources, libraries: FakeLibraries, tmp_path: Path) -> None:
    write(libraries.site("3.10") / "grpc" / "cygrpc.cpython-310-x86_64-linux-gnu.so", "")
    with pytest.raises(PayloadError, match=r"^grpc/cygrpc\S+ is compiled for one Python"):
        build_payload(tmp_path / "out", checkout, libraries)


def test_everything_is_root_s_and_of_no_time(checkout: Sources, libraries: FakeLibraries, tmp_path: Path) -> None:
    build_payload(tmp_path / "out", checkout, libraries)

    with tarfile.open(load_payload(tmp_path / "out").hook.path) as tar:
        members = {member.name: member for member in tar.getmembers()}
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members.values()} == {(0, 0, "root", 0)}
    assert oct(members["grapnel-hook"].mode) == oct(members["grapnel-runtime"].mode) == oct(0o755)
    assert oct(members["runtime_hook"].mode) == oct(0o755)
    assert oct(members["runtime_hook/cli.py"].mode) == oct(0o644)


def test_the_same_sources_elsewhere_give_the_same_bytes(tmp_path: Path, libraries: FakeLibraries) -> None:
    manifests = [
        build_payload(tmp_path / f"out-{each}", find_sources(make_checkout(tmp_path / each)), libraries)
        for each in ("here", "there")
    ]

    assert manifests[0] == manifests[1]
    for name in manifests[0].names:
        assert (tmp_path / "out-here" / name).read_bytes() == (tmp_path / "out-there" / name).read_bytes()


def test_a_second_build_leaves_the_archives_alone(checkout: Sources, libraries: FakeLibraries, tmp_path: Path) -> None:
    build_payload(tmp_path / "out", checkout, libraries)
    before = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.tar")}

    build_payload(tmp_path / "out", checkout, libraries)

    assert {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.tar")} == before


def test_the_build_before_is_kept_and_older_ones_go(
    checkout: Sources, libraries: FakeLibraries, tmp_path: Path
) -> None:
    hooks = []
    for text in ("1", "2", "3"):
        write(checkout.hook / "cli.py", text)
        hooks.append(build_payload(tmp_path / "out", checkout, libraries).hook.name)

    assert sorted(path.name for path in (tmp_path / "out").glob("hook-*.tar")) == sorted(hooks[1:])


def test_a_broken_manifest_is_rewritten(checkout: Sources, libraries: FakeLibraries, tmp_path: Path) -> None:
    write(tmp_path / "out" / "manifest.json", "{")

    build_payload(tmp_path / "out", checkout, libraries)

    assert load_payload(tmp_path / "out").unit == "[Service]\n"


def test_the_executable_runs_from_wherever_it_is_unpacked(
    checkout: Sources, libraries: FakeLibraries, tmp_path: Path
) -> None:
    build_payload(tmp_path / "out", checkout, libraries)
    release = tmp_path / "releases" / "hook-1"
    release.mkdir(parents=True)
    run(["tar", "-xf", load_payload(tmp_path / "out").hook.path, "-C", str(release)])
    (tmp_path / "hook").symlink_to(release)

    printed = run([str(tmp_path / "hook" / "grapnel-hook")])

    assert printed == "this is runtime_hook\n"


def test_the_driver_s_program_runs_from_wherever_it_is_unpacked(
    checkout: Sources, libraries: FakeLibraries, tmp_path: Path
) -> None:
    build_payload(tmp_path / "out", checkout, libraries)
    release = tmp_path / "driver-1"
    release.mkdir()
    run(["tar", "-xf", load_payload(tmp_path / "out").driver.path, "-C", str(release)])

    assert run([str(release / "grapnel-driver")]) == "this is the driver\n"


@pytest.mark.parametrize(
    "missing",
    [
        "runtime_hook",
        "plugin",
        "requirements/node.txt",
        "deploy/systemd/grapnel-node.service",
        "deploy/systemd/grapnel-inventory.path",
    ],
)
def test_an_incomplete_checkout_is_named(missing: str, tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "checkout")
    (root / missing).rename(tmp_path / "gone")

    with pytest.raises(PayloadError) as raised:
        find_sources(root)

    assert raised.value.message == f"{root / missing} does not exist"


def test_a_launcher_that_is_missing_is_named(checkout: Sources, libraries: FakeLibraries, tmp_path: Path) -> None:
    (checkout.hook / "launcher.py").unlink()

    with pytest.raises(PayloadError, match=r"launcher\.py does not exist"):
        build_payload(tmp_path / "out", checkout, libraries)


def test_an_installed_grapnel_has_the_same_files_in_its_package(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "site-packages")
    installed = root / "provision" / "_payload"
    installed.mkdir(parents=True)
    (root / "requirements" / "node.txt").rename(installed / "node.txt")
    for unit in (root / "deploy" / "systemd").iterdir():
        unit.rename(installed / unit.name)
    collection = root / "provision" / "_collection" / "ansible_collections" / "grapnel" / "node" / "plugins"
    collection.mkdir(parents=True)
    (root / "playbooks" / "plugins" / "module_utils").rename(collection / "module_utils")

    sources = find_sources(root)

    assert (sources.requirements, sources.unit) == (installed / "node.txt", installed / "grapnel-node.service")
    assert {unit.parent for unit in (*sources.hook_units, *sources.node_units)} == {installed}
    assert sources.module_utils == collection / "module_utils"


def test_a_folder_that_cannot_be_written_is_named(checkout: Sources, libraries: FakeLibraries, tmp_path: Path) -> None:
    write(tmp_path / "out")

    with pytest.raises(PayloadError, match="out: file exists"):
        build_payload(tmp_path / "out", checkout, libraries)


def test_an_archive_of_the_right_size_that_was_damaged_is_built_again(
    checkout: Sources, libraries: FakeLibraries, tmp_path: Path
) -> None:
    """Every node refused it, and building again, which is the remedy that is named, left it as it was."""
    build_payload(tmp_path / "out", checkout, libraries)
    hook = Path(load_payload(tmp_path / "out").hook.path)
    whole = hook.read_bytes()
    hook.write_bytes(bytes(len(whole)))

    build_payload(tmp_path / "out", checkout, libraries)

    assert hook.read_bytes() == whole
