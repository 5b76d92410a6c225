"""A change is read as both sides write it, and nothing else is: what it names ends up in commands and paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import (
    MAX_CHANGE_BYTES,
    ChangeError,
    change_id,
    parse_change,
    render_change,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import RunRecord, read_run, write_run
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import RUN, open_store

from provision.planning.driver_change import DriverChange
from provision.planning.driver_change import change_id as change_id_of_the_planner

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

CONTRACTS = Path(__file__).parents[3] / "docs" / "contracts"
SAMPLE = json.loads((CONTRACTS / "driver-change/good/debian-dkms.json").read_text())


def samples(contract: str, kind: str) -> pytest.MarkDecorator:
    paths = sorted((CONTRACTS / contract / kind).glob("*.json"))
    assert paths
    return pytest.mark.parametrize("sample", paths, ids=lambda path: path.stem)


def changed(**changes: object) -> bytes:
    return json.dumps({**SAMPLE, **changes}).encode()


@samples("driver-change", "good")
def test_planner_and_node_give_a_change_the_same_name(sample: Path) -> None:
    planned = msgspec.json.decode(sample.read_bytes(), type=DriverChange)
    read = parse_change(sample.read_bytes())

    assert change_id(read) == change_id_of_the_planner(planned)
    assert json.loads(render_change(read)) == json.loads(sample.read_text())
    assert parse_change(msgspec.json.encode(planned)) == read


@samples("driver-change", "bad")
def test_bad_changes_are_refused(sample: Path) -> None:
    with pytest.raises(ChangeError):
        parse_change(sample.read_bytes())


REFUSED: dict[str, tuple[bytes, str]] = {
    "no document": (b"{", "not a JSON document"),
    "not UTF-8": (b"\xff", "not a JSON document"),
    "nested without end": (b"[" * 100_000, "not a JSON document"),
    "a list": (b"[]", "it: list is not an object"),
    "very long": (b" " * (MAX_CHANGE_BYTES + 1), "more than the limit"),
    "a key twice": (b'{"version": "1", "version": "2"}', "the same key twice"),
    "no number": (changed(hold=float("nan")), "NaN is not a JSON number"),
    "a package that is an option": (changed(packages=[{"name": "-oDebug", "version": "1"}]), r"packages\[0\]\.name"),
    "a package that apt would remove": (changed(packages=[{"name": "dpkg-", "version": "1"}]), r"packages\[0\]\.name"),
    "a package with a path": (changed(packages=[{"name": "a/../b", "version": "1"}]), r"packages\[0\]\.name"),
    "a version with a space": (changed(packages=[{"name": "ab", "version": "1 2"}]), r"packages\[0\]\.version"),
    "a package twice": (changed(packages=[{"name": "ab", "version": "1"}] * 2), "packages: ab is there twice"),
    "a package that comes and goes": (changed(remove=["libcuda1"]), "libcuda1 is among the packages as well"),
    "a file outside /etc": (
        changed(files=[{"path": "/root/.ssh/x", "content": "", "mode": "0644"}]),
        "not below /etc/",
    ),
    "a file with dots": (changed(files=[{"path": "/etc/../x", "content": "", "mode": "0644"}]), "normal form"),
    "a file that is not text": (
        changed(files=[{"path": "/etc/x", "content": "\ud800", "mode": "0644"}]),
        r"files\[0\]\.content: it is not text",
    ),
    "a mode with more bits": (changed(files=[{"path": "/etc/x", "content": "", "mode": "4755"}]), r"files\[0\]\.mode"),
    "a kernel with a path": (changed(kernels=["../../tmp"]), r"kernels\[0\]"),
    "a service that is an option": (changed(services=["--now.service"]), r"services\[0\]"),
    "a module without kernels": (changed(kernels=[]), "kernels: 0 of them do not go with the flavour proprietary"),
    "kernels without a module": (changed(flavour="none"), "kernels: 1 of them do not go with the flavour none"),
    "another module": (changed(module={"version": "1.2"}), "module.version: 1.2 is not the version of the change"),
    "no version with packages": (changed(version=""), "module.version: 550.163.01 is not the version"),
    "a relative key": (changed(sign={"key": "key", "certificate": "/c"}), "sign.key: 'key' is not an absolute path"),
    "too many packages": (changed(remove=[f"p{n}" for n in range(1001)]), "1001 entries are more than 1000"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_could_become_something_else_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(ChangeError, match=reason):
        parse_change(text)


def run_schema() -> Any:
    return json.loads((CONTRACTS / "driver-run/schema.json").read_text())


@samples("driver-run", "good")
def test_good_runs_follow_the_schema_and_are_read_and_written_back(sample: Path, machine: Machine) -> None:
    jsonschema.validate(json.loads(sample.read_text()), run_schema())
    open_store(machine.host)
    machine.write(RUN, sample.read_text())

    read = read_run(machine.host)
    assert isinstance(read, RunRecord)
    write_run(machine.host, read)

    assert json.loads(machine.read(RUN)) == json.loads(sample.read_text())


@samples("driver-run", "bad")
def test_bad_runs_do_not_follow_the_schema(sample: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(sample.read_text()), run_schema())


@pytest.mark.parametrize("name", ["schema-of-the-future", "without-reason"])
def test_a_run_of_another_version_counts_as_none(name: str, machine: Machine) -> None:
    open_store(machine.host)
    machine.write(RUN, (CONTRACTS / f"driver-run/bad/{name}.json").read_text())

    assert read_run(machine.host) is None
