"""A collecting node gets its package sources once; what it answers is unpacked within bounds, whatever that is."""

from __future__ import annotations

import io
import tarfile
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.apply.runner import Event, RunFinished, RunRequest, RunStatus, TaskDone, TaskOutcome
from provision.apply.supply.collect import Collector, unpack
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.payload.model import Artifact
from tests.provision.apply.fakes import FakeFleet, Watcher, context
from tests.provision.samples import make_facts, make_file, make_stack, replace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZQAA\n-----END PGP PUBLIC KEY BLOCK-----\n"
REPOSITORY = {"url": "https://mirror.example/cuda/debian13/", "key": KEY}
DRIVER = make_stack(driver={"version": "550.163.01", "source": "nvidia", "repository": REPOSITORY}).driver


@dataclass
class Connected(FakeFleet):
    """A node that collects; it writes down package sources, unless it forgets them."""

    is_forgetful: bool = False
    files: dict[str, str] = field(default_factory=dict)

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        self.requests.append(request)
        collection: Any = request.extra_vars["grapnel_collection"]
        if not self.is_forgetful:
            self.files |= {one["path"]: one["content"] for one in collection["sources"]}
        facts = replace(make_facts(), files={path: make_file(text) for path, text in self.files.items()})
        yield TaskDone("n1", "gather facts", TaskOutcome.OK, values={"facts": msgspec.json.encode(facts)})
        yield RunFinished(RunStatus.SUCCESSFUL)


def collector(fleet: FakeFleet) -> Collector:
    program = Artifact(path="/payload/driver.tar", digest="0123456789ab")
    return Collector(context(fleet), program, "n1", make_facts(), Watcher(), threading.Event())


def test_the_sources_of_several_drivers_are_written_once() -> None:
    """Each look at the collecting node is a start of Ansible."""
    fleet = Connected({})
    node = collector(fleet)

    first, second = node.with_sources(DRIVER), node.with_sources(DRIVER)

    assert first == second
    assert set(first.files) == {
        "/etc/apt/keyrings/grapnel-nvidia.asc",
        "/etc/apt/sources.list.d/grapnel-nvidia.sources",
    }
    assert len(fleet.requests) == 1


def test_the_source_of_an_engine_is_written_where_it_is_not_there() -> None:
    fleet = Connected({})
    node = collector(fleet)
    named = make_stack(runtime={"source": "docker", "repository": {"key": KEY}})

    first = node.with_engine_source(named)
    node.with_engine_source(named)
    node.with_engine_source(make_stack(runtime={"version": "1.7.24"}))

    assert {"/etc/apt/keyrings/grapnel-docker.asc", "/etc/apt/sources.list.d/grapnel-docker.sources"} == set(
        first.files
    )
    assert len(fleet.requests) == 1
    with pytest.raises(BundleError, match="n1 does not keep the files of its package sources"):
        collector(Connected({}, is_forgetful=True)).with_engine_source(named)


def test_a_node_that_does_not_keep_its_sources_is_told() -> None:
    with pytest.raises(BundleError, match="n1 does not keep the files of its package sources"):
        collector(Connected({}, is_forgetful=True)).with_sources(DRIVER)


def write(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as tar:
        for member in members:
            member.size = 1 if member.isreg() else 0
            tar.addfile(member, io.BytesIO(b"x"))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def test_plain_files_are_unpacked(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar", tarfile.TarInfo("change.json"), tarfile.TarInfo("packages/a_1%3a2.deb"))

    unpack(archive, tmp_path / "set")

    assert (tmp_path / "set/packages/a_1%3a2.deb").read_bytes() == b"x"


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../escaped"),
        tarfile.TarInfo("/tmp/escaped"),
        tarfile.TarInfo("packages/.hidden"),
        special("packages/a.deb", tarfile.SYMTYPE, "/etc/passwd"),
        special("packages/a.deb", tarfile.LNKTYPE, "/etc/passwd"),
        special("packages", tarfile.DIRTYPE),
        special("null", tarfile.CHRTYPE),
    ],
    ids=["above", "absolute", "hidden", "symbolic link", "hard link", "folder", "device"],
)
def test_anything_else_is_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    archive = write(tmp_path / "a.tar", member)

    with pytest.raises(BundleError, match="is no plain file"):
        unpack(archive, tmp_path / "set")

    assert not (tmp_path / "escaped").exists()


def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar", tarfile.TarInfo("change.json"), tarfile.TarInfo("change.json"))

    with pytest.raises(BundleError, match="file exists"):
        unpack(archive, tmp_path / "set")


@pytest.mark.parametrize("content", [b"rubbish" * 200, b"x"], ids=["another file", "a short one"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(content)

    with pytest.raises(BundleError, match="cannot be read"):
        unpack(archive, tmp_path / "set")
