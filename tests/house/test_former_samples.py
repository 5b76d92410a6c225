"""Formats are read one release back: what the release before wrote is still among the samples that both sides read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.load import load_declaration
from tests.former import ROOT, extract, has_history

if TYPE_CHECKING:
    from pathlib import Path

# What nodes, Nodes and controllers keep, so that another release finds it. What one release writes and reads, such
# as a plan or the output of a command, may change with it.
KEPT = (
    "bundle", "device-class", "driver-change", "driver-run", "hook-config", "inventory", "memory-units",
    "mig-layout", "node-config", "node-health", "node-history", "node-state", "nvidia-config", "nvml-facts",
    "originals", "pause", "payload", "rollout-progress",
)  # fmt: skip


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contracts of the release before."""
    if not has_history():
        pytest.skip("this checkout has no history: the samples of the release before cannot be had")
    return extract(tmp_path_factory.mktemp("former"), "docs/contracts") / "docs" / "contracts"


def samples(contracts: Path, name: str) -> dict[bytes, str]:
    return {
        path.read_bytes(): path.name for path in sorted(contracts.joinpath(name, "good").rglob("*")) if path.is_file()
    }


@pytest.mark.parametrize("name", KEPT)
def test_what_the_release_before_wrote_is_still_a_good_sample(former: Path, name: str) -> None:
    now, then = samples(ROOT / "docs" / "contracts", name), samples(former, name)
    gone = sorted(then[text] for text in then.keys() - now.keys())
    assert gone == [], f"keep {gone} of the release before beside the new samples, so that both sides' tests read them"


def test_a_declaration_of_the_release_before_is_still_one(former: Path) -> None:
    declarations = sorted(former.joinpath("gpustack", "good").glob("*.yaml"))
    assert declarations
    for path in declarations:
        load_declaration(path)


def test_every_contract_that_is_kept_exists() -> None:
    assert {name for name in KEPT if not samples(ROOT / "docs" / "contracts", name)} == set()
