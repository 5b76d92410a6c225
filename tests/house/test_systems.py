"""The page of systems has those that the code knows, and says how each was verified as the tests do it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from lab.golang.programs import CONTAINERD_VERSION, NEWEST_CONTAINERD_VERSION, known_versions
from lab.sources.systems import SYSTEMS, find_system
from lab.trees.suites import SUITES
from provision.planning.driver.packages.catalogue import ARCHITECTURES, DISTRIBUTIONS
from tests.e2e.test_other_systems import ROCKY, UBUNTU
from tests.house.named_tests import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.planning.driver.packages.distribution import Distribution

PAGE: Final = ROOT / "docs" / "systems.md"
NAMES: Final = {
    "almalinux": "AlmaLinux",
    "amzn": "Amazon Linux",
    "debian": "Debian",
    "rhel": "RHEL",
    "rocky": "Rocky Linux",
    "sles": "SLES",
    "ubuntu": "Ubuntu",
}
COLUMNS: Final = 6
NODES: Final = [
    cells
    for line in PAGE.read_text().splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split(" | ")]) == COLUMNS and cells[0] != "system"
]


def cells_of(identity: str, version: str) -> list[list[str]]:
    """Return the rows of a release: "RHEL 9, AlmaLinux 9", "Ubuntu 22.04, 26.04"."""
    named = re.compile(rf"{NAMES[identity]} (?:[\d.]+, )*{re.escape(version)}(?![\d.])")
    return [cells for cells in NODES if named.search(cells[0])]


@pytest.mark.parametrize("each", DISTRIBUTIONS, ids=lambda each: f"{each.id}-{each.version_id}")
def test_every_system_of_the_catalogue_is_on_the_page(each: Distribution) -> None:
    assert cells_of(each.id, each.version_id)


def _release(os: Mapping[str, str]) -> str:
    """Return how the page has a release: "9" of 9.6, but "24.04"."""
    return os["VERSION_ID"] if os["ID"] in {"ubuntu", "amzn"} else os["VERSION_ID"].partition(".")[0]


def test_the_systems_of_emulated_nodes_are_those_of_the_lab() -> None:
    said = [dict(system.os_release) for system in SYSTEMS.values()]
    emulated = [cells[0] for cells in NODES if cells[5].startswith("driver on an emulated node")]
    whole = [cells[0] for cells in NODES if cells[4].startswith("installed")]

    assert len(emulated) == len(said)
    for os in said:
        assert [cells for cells in cells_of(os["ID"], _release(os)) if cells[0] in emulated]
    assert sorted(whole) == sorted(f"Debian {suite.version_id}" for suite in SUITES.values())


def test_the_systems_that_are_nodes_of_kubernetes_are_those_of_the_stage() -> None:
    said = [cells[0] for cells in NODES if "as a node of Kubernetes" in cells[5]]
    tried = [dict(find_system(case.node.system).os_release) for case in (UBUNTU, ROCKY)]

    assert sorted(said) == sorted(f"{NAMES[os['ID']]} {_release(os)}" for os in tried)


def test_systems_with_an_older_kernel_than_the_hook_needs_have_no_engine() -> None:
    for cells in NODES:
        found = re.match(r"(\d+)\.(\d+)", cells[1].strip("*"))
        assert found
        assert ((int(found[1]), int(found[2])) < (5, 12)) == (cells[4] == "[no](#kernel)"), cells[0]


def test_the_page_has_the_versions_that_the_tests_build() -> None:
    text = PAGE.read_text()
    for version in (*known_versions("kubernetes"), CONTAINERD_VERSION, NEWEST_CONTAINERD_VERSION, *ARCHITECTURES):
        assert version in text
