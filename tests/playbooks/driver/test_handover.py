"""What the controller hands over counts only when all of it is there, whoever dies on the way."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import handed_over
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import PackageSystem
from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.handover import (
    HandoverError,
    find_missing,
    find_needed,
    finish,
    take_files,
)

from tests.playbooks.staging.node import Node, Packages, Source

if TYPE_CHECKING:
    from pathlib import Path

    from tests.playbooks.driver.machines import FakeMachine

ID = "0123456789ab"
PACKAGE, MODULE = "packages/libpci3_1%3a3.13.0-2_amd64.deb", "modules/6.12.117+deb13-amd64.tar.gz"
INCOMING = f"/var/lib/grapnel/driver/incoming/{ID}"
TEXTS = {PACKAGE: "a library", MODULE: "a module"}
FILES = {place: hashlib.sha256(text.encode()).hexdigest() for place, text in TEXTS.items()}


def send(fake: FakeMachine, place: str, text: str = "") -> None:
    take_files(fake.host(), ID, FILES, pack(fake, {place: text or TEXTS[place]}))


def pack(fake: FakeMachine, texts: dict[str, str]) -> str:
    """Write an archive as the controller sends it, and return its path on the node."""
    fake.write("tmp/files", "")
    with tarfile.open(fake.root / "tmp/files", "w") as tar:
        for place, text in texts.items():
            header = tarfile.TarInfo(place)
            header.size = len(text.encode())
            tar.addfile(header, io.BytesIO(text.encode()))
    return "/tmp/files"


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_is_missing_is_taken_and_then_counts(fake: FakeMachine) -> None:
    host = fake.host()
    assert find_missing(host, ID, FILES) == sorted(FILES)

    send(fake, PACKAGE)
    assert find_missing(host, ID, FILES) == [MODULE]
    assert handed_over(host, ID) == {}, "there is no list yet"
    send(fake, MODULE)

    assert find_missing(host, ID, FILES) == []
    assert finish(host, ID, FILES)
    assert handed_over(host, ID) == {place: f"{INCOMING}/{place}" for place in FILES}
    assert json.loads((fake.root / f"{INCOMING}/list.json".lstrip("/")).read_text()) == FILES
    assert mode_of(fake.root / INCOMING.lstrip("/")) == 0o700
    assert mode_of(fake.root / f"{INCOMING}/{PACKAGE}".lstrip("/")) == 0o600


def test_a_second_run_sends_nothing(fake: FakeMachine) -> None:
    for place in FILES:
        send(fake, place)
    finish(fake.host(), ID, FILES)

    assert find_missing(fake.host(), ID, FILES) == []
    assert not finish(fake.host(), ID, FILES)


def test_what_was_damaged_since_is_sent_again_and_counts_for_nothing_until_then(fake: FakeMachine) -> None:
    for place in FILES:
        send(fake, place)
    finish(fake.host(), ID, FILES)
    fake.write(f"{INCOMING}/{MODULE}", "another")

    assert find_missing(fake.host(), ID, FILES) == [MODULE]
    send(fake, MODULE)
    assert handed_over(fake.host(), ID) == {}
    assert finish(fake.host(), ID, FILES)


def test_what_arrives_damaged_is_refused(fake: FakeMachine) -> None:
    with pytest.raises(HandoverError, match="arrived damaged"):
        send(fake, PACKAGE, "cut")

    assert find_missing(fake.host(), ID, FILES) == sorted(FILES)


@pytest.mark.parametrize(
    "place",
    ["packages/../../current", "/etc/passwd", "packages/a/b", "before/x", "packages/.new", "packages/", "modules/a\n"],
)
def test_nothing_is_written_elsewhere(fake: FakeMachine, place: str) -> None:
    digest = hashlib.sha256(b"x").hexdigest()

    with pytest.raises(HandoverError, match="no place for a package"):
        take_files(fake.host(), ID, {place: digest}, pack(fake, {place: "x"}))
    with pytest.raises(HandoverError, match="is not a file of the bundle"):
        take_files(fake.host(), ID, FILES, pack(fake, {place: "x"}))
    with pytest.raises(HandoverError, match="no place for a package"):
        find_missing(fake.host(), ID, {place: digest})


@pytest.mark.parametrize("identifier", ["", "..", "0123456789AB", "0123456789ab/.."])
def test_a_change_has_its_own_name(fake: FakeMachine, identifier: str) -> None:
    with pytest.raises(HandoverError, match="not the name of a change"):
        find_missing(fake.host(), identifier, FILES)


def test_an_archive_that_is_cut_is_refused(fake: FakeMachine) -> None:
    archive = fake.root / pack(fake, TEXTS).lstrip("/")
    archive.write_bytes(archive.read_bytes()[:700])

    with pytest.raises(HandoverError, match="arrived damaged"):
        take_files(fake.host(), ID, FILES, "/tmp/files")

    assert MODULE in find_missing(fake.host(), ID, FILES)
    assert handed_over(fake.host(), ID) == {}


@pytest.mark.parametrize(
    ("installed", "needed"),
    [("1:3.13.0-2", [MODULE]), ("1:3.14.0-1", [MODULE]), ("1:3.12.0-4", [MODULE, PACKAGE]), ("", [MODULE, PACKAGE])],
    ids=["the same", "a newer one", "an older one", "none"],
)
def test_a_package_that_the_node_has_as_new_is_not_sent(tmp_path: Path, installed: str, needed: list[str]) -> None:
    node = Node(tmp_path, installed={"libpci3": installed} if installed else {})
    system = PackageSystem(Packages(node), Source(node))

    found = find_needed(node.host, system, FILES, {PACKAGE: ("libpci3", "1:3.13.0-2")})

    assert sorted(found) == needed
