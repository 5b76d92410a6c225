"""What a real API server serves of the interfaces that grapnel names, beside what the page says of this version."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from lab.golang.programs import kubernetes_version
from tests.house.interfaces import CLUSTER, Row, rows

if TYPE_CHECKING:
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional
RELEASE = tuple(map(int, kubernetes_version().split(".")[:2]))


def served_by(stage: Stage) -> set[str]:
    """Return the groups and versions that are built in: other tests define some of others on the same server."""
    built_in = ("--selector", "kube-aggregator.kubernetes.io/automanaged=onstart")
    services = json.loads(stage.kubectl("get", "apiservices", *built_in, "--output", "json"))["items"]
    served = [(service["spec"].get("group", ""), service["spec"]["version"]) for service in services]
    return {group for group, _ in served} | {"/".join(filter(None, pair)) for pair in served}


@pytest.mark.parametrize("row", rows(CLUSTER), ids=lambda row: row.names[0])
def test_an_api_server_serves_what_the_page_says_of_its_version(stage: Stage, row: Row) -> None:
    found = re.match(r"(\d+)\.(\d+) and later(, switched on)?", row.cells[1])
    assert found is not None
    expected = (int(found[1]), int(found[2])) <= RELEASE and not found[3]
    assert (row.names[0] in served_by(stage)) == expected
