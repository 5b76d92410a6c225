"""What the daemon leaves for the hook: the contract's shape, and when it is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from plugin.daemon.hook_facts import render_facts, write_facts
from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.snapshot import MigFacts, Snapshot
from tests.plugin.daemon_process import DaemonProcess
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus, write_driver
from tests.waiting import wait_until

CONTRACT = Path(__file__).parents[3] / "docs/contracts/nvml-facts"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())
MIG = (MigFacts("MIG-00000000-0000-0000-0000-000000000001", 0, 1, 0),)


def inventory(*found: object, cuda: str = "12.4") -> Inventory:
    return next_inventory(Inventory(), Snapshot(VERSION, found or gpus(2), cuda_version=cuda), DictTree())  # type: ignore[arg-type] # GPUs


@pytest.mark.parametrize("path", sorted((CONTRACT / "good").glob("*.json")), ids=lambda path: path.stem)
def test_good_samples_have_the_schemas_shape(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)


@pytest.mark.parametrize("path", sorted((CONTRACT / "bad").glob("*.json")), ids=lambda path: path.stem)
def test_bad_samples_have_not(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)


def test_what_is_written_has_the_schemas_shape() -> None:
    known = replace(gpu(0), brand="Nvidia", compute_capability="8.0", mig=MIG)
    document = json.loads(render_facts(inventory(known, gpu(1))))
    jsonschema.validate(document, SCHEMA)
    assert (document["driver_version"], document["cuda_version"]) == (VERSION, "12.4")
    assert [found["uuid"] for found in document["gpus"]] == [gpu(0).uuid, gpu(1).uuid]
    assert document["gpus"][0]["mig"] == [{"uuid": MIG[0].uuid, "index": 0, "gpu_instance": 1, "compute_instance": 0}]


def test_the_file_is_replaced_in_one_step_and_only_for_something_new(tmp_path: Path) -> None:
    path = tmp_path / "nvml.json"
    write_facts(path, "one")
    first = path.stat()
    assert first.st_mode & 0o777 == 0o644
    write_facts(path, "one")
    assert path.stat().st_mtime_ns == first.st_mtime_ns
    write_facts(path, "two")
    assert path.read_text() == "two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["nvml.json"]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "nvml.json").symlink_to("other")
    write_facts(tmp_path / "nvml.json", "one")
    assert (tmp_path / "other").read_text() == "kept"
    assert not (tmp_path / "nvml.json").is_symlink()


@pytest.fixture
def node(tmp_path: Path) -> DaemonProcess:
    made = DaemonProcess(tmp_path)
    hook = made.node / "grapnel-hook"
    hook.write_text(f'#!/bin/sh\ncp {made.node}/run/nvml.json {made.node}/seen; echo "$@" >> {made.node}/calls\n')
    hook.chmod(0o755)
    return made


def seen(node: DaemonProcess, words: str) -> bool:
    path = node.node / "seen"
    return path.exists() and words in path.read_text()


@pytest.mark.slow
def test_the_hook_finds_the_facts_of_start_and_of_every_change(node: DaemonProcess) -> None:
    """The hook is run after the file is there: it sees what it was called for."""
    with node:
        wait_until(lambda: seen(node, gpu(1).uuid), node.log)
        write_driver(node.driver, Snapshot(VERSION, (replace(gpu(0), mig=MIG), gpu(1))))
        wait_until(lambda: seen(node, MIG[0].uuid), node.log)
        write_driver(node.driver, Snapshot(VERSION, (replace(gpu(0), mig=MIG),)))
        node.wait_for_log("unhealthy")
    # A GPU that does not answer is still the same GPU to the hook.
    assert (node.node / "calls").read_text() == "refresh\nrefresh\n"


@pytest.mark.slow
def test_facts_that_cannot_be_written_are_no_reason_not_to_refresh(node: DaemonProcess) -> None:
    (node.node / "run").mkdir()
    (node.node / "run/nvml.json").mkdir()
    with node:
        node.wait_for_log("cannot be written")
        wait_until((node.node / "calls").exists, node.log)
