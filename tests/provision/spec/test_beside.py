"""Files beside a declaration: each is read once, and a node keeps what is chosen of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from provision.declaration.spec.beside import Beside
from provision.declaration.spec.model import StackSpec

if TYPE_CHECKING:
    import pytest

SAMPLES = Path(__file__).parents[3] / "docs/contracts/gpustack/good"
OWN = {"version": "v1", "mig-configs": {"own": [{"devices": "all", "mig-enabled": False}]}}


def stack(**mig: Any) -> StackSpec:
    return msgspec.convert({"mig": mig, "plugin": {"migStrategy": "mixed"}}, StackSpec)


def test_a_node_keeps_the_chosen_layout_alone() -> None:
    spec, remarks = Beside(SAMPLES).complete(stack(layout="all-1g.10gb", configFile="beside/mig-config.yaml"))

    assert remarks == []
    assert spec.mig.config is not None
    assert list(spec.mig.config.mig_configs) == ["all-1g.10gb"]
    assert [entry.filters[0] for entry in spec.mig.config.mig_configs["all-1g.10gb"]] == ["0x233010de", "0x20b010de"]
    assert spec.mig.config_file is None


def test_what_is_completed_stays_as_it_is_wherever_it_is_completed_again(tmp_path: Path) -> None:
    spec, _ = Beside(SAMPLES).complete(stack(layout="all-balanced", configFile="beside/mig-config.yaml"))

    assert Beside(tmp_path).complete(spec) == (spec, [])
    assert msgspec.convert(msgspec.to_builtins(spec), StackSpec) == spec


def test_own_layouts_count_beside_those_of_a_file() -> None:
    spec, remarks = Beside(SAMPLES).complete(stack(layout="own", configFile="beside/mig-config.yaml", config=OWN))

    assert remarks == []
    assert spec.mig.config is not None
    assert list(spec.mig.config.mig_configs) == ["own"]


def test_layouts_that_no_node_has_chosen_are_left_out() -> None:
    assert Beside(SAMPLES).complete(stack(config=OWN))[0].mig == StackSpec().mig


def test_a_file_is_read_once_for_all_nodes_and_its_findings_are_told_once(tmp_path: Path) -> None:
    (tmp_path / "mig.yaml").write_text("version: v2\n")
    beside = Beside(tmp_path)
    for _ in range(3):
        spec, remarks = beside.complete(stack(layout="x", configFile="mig.yaml"))
        assert (spec.mig.config, remarks) == (None, [])

    assert [finding.key for finding in beside.findings] == ["version", '["mig-configs"]']


def test_a_path_that_hangs_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mig.yaml")

    _, remarks = Beside(tmp_path).complete(stack(layout="x", configFile="mig.yaml"))

    assert [each.message for each in remarks] == [f"{tmp_path}/mig.yaml cannot be read: not a regular file"]


def test_an_absolute_path_is_read_from_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(SAMPLES / "beside/mig-config.yaml")

    spec, _ = Beside(Path()).complete(stack(layout="all-disabled", configFile=path))

    assert spec.mig.config is not None
