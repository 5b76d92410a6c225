"""Files of prepared claims: the contract's samples, as they are read and written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from plugin.base.errors import ClaimError
from plugin.base.log import Logger
from plugin.dra.claims import ClaimName
from plugin.dra.store import (
    PARTITIONS,
    ClaimStore,
    Edits,
    PartitionStore,
    PreparedDevice,
    Published,
    Record,
    parse_record,
    published_in,
    render_record,
)

CONTRACT = Path(__file__).parents[3] / "docs/contracts/claim"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())


def uid_of(path: Path) -> str:
    return str(json.loads(path.read_text())["uid"])


@pytest.mark.parametrize("path", sorted(CONTRACT.glob("good/*.json")), ids=lambda path: path.stem)
def test_good_samples_are_read_and_written_as_they_are(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    record = parse_record(path.read_bytes(), uid_of(path))
    assert json.loads(render_record(record)) == json.loads(path.read_text())


@pytest.mark.parametrize("path", sorted(CONTRACT.glob("bad/*.json")), ids=lambda path: path.stem)
def test_bad_samples_are_refused_for_the_right_reason(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    with pytest.raises(ValueError, match=path.with_suffix(".txt").read_text().strip()):
        parse_record(path.read_bytes(), uid_of(path))


def test_a_file_of_another_claim_is_refused() -> None:
    path = CONTRACT / "good/admin.json"
    with pytest.raises(ValueError, match="uid"):
        parse_record(path.read_bytes(), "another")


def test_what_a_daemon_that_was_killed_was_writing_keeps_no_folder(tmp_path: Path) -> None:
    store, partitions = ClaimStore(tmp_path, Logger()), PartitionStore(tmp_path)
    (tmp_path / PARTITIONS).mkdir(parents=True)
    (tmp_path / "claims/.u1.json.new").touch()
    (tmp_path / PARTITIONS / ".gpu-0-mig-19-0.new").touch()
    partitions.remove_folder()
    store.remove_folder()
    assert not (tmp_path / "claims").exists()


def test_no_claim_is_prepared_once_the_device_plugin_gives_the_gpus(tmp_path: Path) -> None:
    """A call of the kubelet that comes while the driver ends."""
    store = ClaimStore(tmp_path, Logger())
    record = parse_record((CONTRACT / "good/admin.json").read_bytes(), uid_of(CONTRACT / "good/admin.json"))
    store.put(record)
    store.remove(record.claim.uid)
    store.remove_folder()
    with pytest.raises(ClaimError, match="device plugin"):
        store.put(record)
    assert not (tmp_path / "claims").exists()
    assert not store


def test_where_slices_are_published_is_on_the_disk_before_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = Published("kubelet.conf", "n1"), Published("kubelet.conf", "n2")
    folder = tmp_path / "state"
    folder.write_text("no folder")
    store = ClaimStore(folder, Logger(), "other-claims")
    assert not store.note_published(here)
    assert f"{folder / 'other-claims'} cannot be written" in caplog.text
    folder.unlink()
    assert store.note_published(here)
    assert published_in(folder, "other-claims") == here
    assert store.note_published(there)
    assert published_in(folder, "other-claims") == there


def test_a_claim_whose_file_could_not_be_read_again_is_not_remembered(tmp_path: Path) -> None:
    """After a restart nobody knew what it has, so nothing was given to anybody any more."""
    edits = tuple(Edits(f"nic-{number}", json.dumps({"env": ["X=" + "x" * 4000]})) for number in range(80))
    record = Record(ClaimName("ml", "a", "u1"), (PreparedDevice("nic", "n1", "nic", "nic", ("nic",), edits=edits),))
    store = ClaimStore(tmp_path, Logger())
    with pytest.raises(ClaimError, match="adds more than"):
        store.put(record)
    again = ClaimStore(tmp_path, Logger())
    again.load()
    assert not store
    assert not again
