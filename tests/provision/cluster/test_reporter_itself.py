"""Events and conditions of an upgrade on a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.cluster.kubernetes.nodes.others import UPGRADE_CONDITION
from provision.cluster.kubernetes.notices import LIFECYCLE
from provision.rollout.interface.progress import PhaseEntered
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional


def test_an_upgrade_shows_on_the_node(stage: Stage) -> None:
    node = stage.make_node()
    cluster = stage.connect()
    cluster.observe([node])
    reporter = cluster.reporter(events=True, kinds=[UPGRADE_CONDITION, *LIFECYCLE])
    for phase in (Phase.CORDON, Phase.DRAIN, Phase.DRAIN, Phase.SWAP):
        reporter.hear(PhaseEntered(node, phase))

    assert reporter.close() == ""
    stored = stage.get("node", node)
    conditions = {each["type"]: (each["status"], each.get("reason")) for each in stored["status"]["conditions"]}
    assert conditions["Ready"][0] == "True", "conditions of others stay"
    assert conditions[UPGRADE_CONDITION] == ("True", "GrapnelSwap")
    assert {kind: conditions[kind][0] for kind in LIFECYCLE} == {
        "MaintenancePlanned": "False",
        "DrainInProgress": "False",
        "Drained": "True",
        "MaintenanceInProgress": "True",
    }
    listed = stage.get("events", "--all-namespaces", "--field-selector", f"involvedObject.name={node}")
    counts = {each["reason"]: each["count"] for each in listed["items"] if each["source"].get("component") == "grapnel"}
    assert counts == {"GrapnelCordon": 1, "GrapnelDrain": 2, "GrapnelSwap": 1}
