"""What was there before the first change is remembered through all later ones, and through kills between them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileText, find_changes, swap_in
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    PLACE,
    Originals,
    OriginalsError,
    Packages,
    find_unrecorded,
    parse_originals,
    read_originals,
    remember_changes,
    remember_packages,
    remember_unit,
    write_originals,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import Reader, part_of

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

SAMPLES = Path(__file__).parents[3] / "docs" / "contracts" / "originals"
MAIN, DROP_IN = "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"
ENGINE = Reader("containerd.service", "containerd")


def change(machine: Machine, *, killed: bool = False, **texts: str) -> None:
    """Write files as a role does; a killed run has only remembered what there was."""
    paths = {"main": MAIN, "drop_in": DROP_IN}
    changes = find_changes(machine.host, [FileText(paths[name], text, 0o644) for name, text in texts.items()])
    remember_changes(machine.host, changes, ENGINE)
    if not killed:
        swap_in(machine.host, changes)


def before(machine: Machine, path: str = MAIN) -> str | None:
    known = read_originals(machine.host).files[path].before
    return None if known is None else known.content


def test_the_first_text_is_kept_through_later_releases(machine: Machine) -> None:
    machine.write(MAIN, "theirs\n", mode=0o640)
    change(machine, main="theirs\nours 1\n", drop_in="ours 1\n")
    change(machine, main="theirs\nours 2\n", drop_in="ours 2\n")

    assert (before(machine), before(machine, DROP_IN)) == ("theirs\n", None)
    assert read_originals(machine.host).files[MAIN].before == FileText(
        MAIN, "theirs\n", 0o640, (os.geteuid(), os.getegid())
    )
    assert read_originals(machine.host).folders == ("/etc/containerd/conf.d",)
    assert (machine.root / PLACE.lstrip("/")).stat().st_mode & 0o777 == 0o600


def test_an_edit_in_between_becomes_what_was_there_before(machine: Machine) -> None:
    machine.write(MAIN, "a\nz\n")
    change(machine, main="a\nours 1\nz\n")
    machine.write(MAIN, "a\nours 1\nz\nby hand\n")
    change(machine, main="a\nours 2\nz\nby hand\n")

    assert before(machine) == "a\nz\nby hand\n"


def test_a_file_that_a_package_has_replaced_is_what_was_there_before(machine: Machine) -> None:
    machine.write(MAIN, "version = 2\n")
    change(machine, main="version = 2\nours\n")
    machine.write(MAIN, "version = 3\n")
    change(machine, main="version = 3\nours\n")

    assert before(machine) == "version = 3\n"


def test_a_run_that_was_killed_before_it_wrote_has_lost_nothing(machine: Machine) -> None:
    machine.write(MAIN, "theirs\n")
    change(machine, main="theirs\nours 1\n", killed=True)
    change(machine, main="theirs\nours 2\n", killed=True)
    change(machine, main="theirs\nours 3\n")

    assert before(machine) == "theirs\n"


def test_bytes_that_are_no_text_come_back(machine: Machine) -> None:
    machine.write(MAIN).write_bytes(b"# na\xefve\n")
    change(machine, main="ours\n")

    assert (before(machine) or "").encode("utf-8", "surrogateescape") == b"# na\xefve\n"


def test_packages_and_units_are_remembered_once(machine: Machine) -> None:
    remember_packages(machine.host, "docker", Packages(("docker.io", "runc"), ("/var/lib/docker",)))
    remember_packages(machine.host, "docker", Packages(("docker.io",)))
    remember_unit(machine.host, "docker.service", enabled=False, active=True)
    remember_unit(machine.host, "docker.service", enabled=True, active=True)

    known = read_originals(machine.host)
    assert known.packages == {"docker": Packages(("docker.io", "runc"), ("/var/lib/docker",))}
    assert known.units == {"docker.service": (False, True)}


def test_the_drivers_sources_are_the_drivers_to_remember(machine: Machine) -> None:
    path = "/etc/apt/sources.list.d/grapnel-nvidia.sources"
    remember_changes(machine.host, find_changes(machine.host, [FileText(path, "x", 0o644)]), Reader())

    assert not (machine.root / PLACE.lstrip("/")).exists()


@pytest.mark.parametrize(
    ("path", "reader", "part"),
    [
        (MAIN, ENGINE, "runtime"),
        ("/etc/grapnel/containerd/base-spec.json", ENGINE, "runtime"),
        ("/usr/share/containers/oci/hooks.d/99-grapnel.json", Reader("", "podman"), "runtime"),
        ("/etc/grapnel/hook.json", Reader(), "hook"),
        ("/etc/grapnel/mig-layout.json", Reader(), "daemon"),
        ("/etc/systemd/system/grapnel-node.service", Reader("grapnel-node.service"), "daemon"),
        ("/etc/sysctl.d/99-grapnel.conf", Reader(), "node"),
    ],
)
def test_every_file_belongs_to_one_part(path: str, reader: Reader, part: str) -> None:
    assert part_of(path, reader) == part


@pytest.mark.parametrize(
    ("path", "reader"),
    [
        ("/usr/share/containers/oci/hooks.d/99-grapnel.json", Reader("", "podman")),
        ("/etc/containers/oci/hooks.d/99-grapnel.json", Reader("crio.service", "crio")),
    ],
)
def test_a_hook_file_without_a_record_is_its_engines(machine: Machine, path: str, reader: Reader) -> None:
    machine.write(path, "{}")
    assert find_unrecorded(machine.host, Originals()).files[path].reader == reader


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("good/*.json")), ids=lambda path: path.stem)
def test_good_samples_are_read_and_written_back(machine: Machine, sample: Path) -> None:
    known = parse_originals(sample.read_bytes())
    if known.is_empty:
        return
    write_originals(machine.host, known)

    assert json.loads(machine.read(PLACE)) == json.loads(sample.read_text())


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("bad/*.json")), ids=lambda path: path.stem)
def test_bad_samples_are_never_replaced(machine: Machine, sample: Path) -> None:
    machine.write(PLACE, sample.read_text())

    with pytest.raises(OriginalsError, match=PLACE):
        change(machine, main="ours\n")
    assert machine.read(PLACE) == sample.read_text()


def test_samples_follow_the_schema() -> None:
    import jsonschema  # noqa: PLC0415 - it takes its time

    schema: dict[str, Any] = json.loads((SAMPLES / "schema.json").read_text())
    for sample in SAMPLES.glob("*/*.json"):
        validator = jsonschema.Draft202012Validator(schema)
        assert validator.is_valid(json.loads(sample.read_text())) is (sample.parent.name == "good"), sample


def test_what_a_release_without_records_has_written_is_not_what_was_there_before(machine: Machine) -> None:
    machine.write(DROP_IN, "# managed by grapnel: by the release before\n")
    change(machine, drop_in="# managed by grapnel: by this one\n")

    assert before(machine, DROP_IN) is None
