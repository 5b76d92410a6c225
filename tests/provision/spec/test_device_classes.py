"""Files of device classes are refused where the node daemon would refuse them: both read the same samples."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from provision.declaration.spec.beside import Beside
from provision.declaration.spec.classes_beside import MAX_BYTES, find_ready
from provision.declaration.spec.model import DeviceClass, StackSpec
from provision.declaration.spec.rules.devices import BUILT_IN

ROOT = Path(__file__).parents[3]
CONTRACT = ROOT / "docs/contracts/device-class"
GOOD = sorted((CONTRACT / "good").glob("*.json"))
BAD = sorted((CONTRACT / "bad").glob("*.json"))


def stack(*sources: object) -> StackSpec:
    return msgspec.convert({"plugin": {"deviceClasses": list(sources)}}, StackSpec)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_what_the_daemon_reads_is_accepted_and_kept_word_for_word(path: Path) -> None:
    beside = Beside(CONTRACT)

    spec, remarks = beside.complete(stack(f"good/{path.name}"))

    assert (remarks, beside.findings) == ([], [])
    assert spec.plugin.device_classes == (DeviceClass(name=path.stem, content=path.read_text()),)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_what_the_daemon_refuses_is_an_error_with_its_line(path: Path) -> None:
    beside = Beside(CONTRACT)

    beside.complete(stack(f"bad/{path.name}"))

    assert beside.findings
    assert {finding.place.source for finding in beside.findings} == {str(path)}
    assert all(finding.place.line and finding.message != "is not valid" for finding in beside.findings)


def test_every_class_that_comes_with_grapnel_is_fit_to_be_declared() -> None:
    beside = Beside(ROOT)

    spec, remarks = beside.complete(stack(*find_ready()))

    assert (remarks, beside.findings) == ([], [])
    assert {path.name for path in (ROOT / "deploy/devices").glob("*.json")} == {
        f"{each.name}.json" for each in spec.plugin.device_classes if isinstance(each, DeviceClass)
    }


def test_the_built_in_variables_are_those_of_the_contract() -> None:
    schema = (CONTRACT / "schema.json").read_text()

    assert all(f'"{name}"' in schema for name in BUILT_IN)


TEXTS = [
    pytest.param(b'{"schema": 1,}', "is not JSON", id="no JSON"),
    pytest.param(b"schema: grapnel.dev/device-class/v1alpha1\n", "is not JSON", id="YAML"),
    pytest.param(b'{"a": "\xff"}', "is not JSON", id="not UTF-8"),
    pytest.param(b" " * (MAX_BYTES + 1), "is larger than 64 KiB", id="huge"),
    pytest.param(b"[" * 50000, "is not JSON", id="deep"),
    pytest.param(b'{"schema": "grapnel.dev/device-class/v1alpha1", "schema": 1}', "is written twice", id="key twice"),
]


@pytest.mark.parametrize(("text", "message"), TEXTS)
def test_a_file_that_is_none_is_told_and_costs_nothing_else(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "cards.json").write_bytes(text)
    beside = Beside(tmp_path)

    beside.complete(stack("cards.json", "fuse"))

    assert message in beside.findings[0].message


def test_tabs_are_as_good_as_spaces(tmp_path: Path) -> None:
    text = (CONTRACT / "good/licences.json").read_text().replace("\n ", "\n\t")
    (tmp_path / "licences.json").write_text(text)
    beside = Beside(tmp_path)

    assert beside.complete(stack("licences.json"))[1] == []
    assert beside.findings == []
