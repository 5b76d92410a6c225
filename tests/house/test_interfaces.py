"""The page of interfaces of others names what the sources name, no more and no less."""

from __future__ import annotations

import re

import pytest

from lab.golang.programs import known_versions
from tests.house import interfaces
from tests.house.interfaces import CLUSTER, DRIVER, ENGINES, KUBELET, OF_OTHERS, STAGE, TOOLS, names, rows

RANGE = re.compile(r"\d+\.\d+ and later(, switched on)?")


@pytest.mark.parametrize(
    ("page", "sources"),
    [
        pytest.param(
            names(CLUSTER) | names(OF_OTHERS) | {name for name in names(KUBELET) if re.search(r"/v\d\w*$", name)},
            interfaces.apis(),
            id="versions of APIs",
        ),
        pytest.param(
            {name for name in names(KUBELET) if not re.search(r"/v\d\w*$", name)},
            interfaces.of_kubelet(),
            id="services of the kubelet",
        ),
        pytest.param(
            names(ENGINES, 1) | {"2", "3", "4"} & names(ENGINES), interfaces.of_engines(), id="keys of engines"
        ),
        pytest.param(names(DRIVER) | names(DRIVER, 1), interfaces.of_driver(), id="functions of NVML"),
        pytest.param(names(TOOLS, 1), interfaces.of_tools(), id="names of tools"),
        pytest.param(names(STAGE, 1), interfaces.of_stage(), id="versions of the stage"),
    ],
)
def test_the_page_has_what_the_sources_name(page: set[str], sources: set[str]) -> None:
    assert sources - page == set(), "the sources name what docs/interfaces.md has not"
    assert page - sources == set(), "docs/interfaces.md has what nothing names any more"


@pytest.mark.parametrize("row", rows(CLUSTER), ids=lambda row: row.names[0])
def test_each_api_says_since_when_it_is_served(row: interfaces.Row) -> None:
    assert RANGE.fullmatch(row.cells[1])


def test_the_stage_has_a_kubernetes_of_each_kind() -> None:
    """One before PodGroups, the one of `make test`, and one after interfaces went away."""
    assert {version.rpartition(".")[0] for version in known_versions("kubernetes")} >= {"1.34", "1.36", "1.37"}
