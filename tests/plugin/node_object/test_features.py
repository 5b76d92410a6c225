"""The NodeFeature object of the node: made, kept, and given up without a gap in the Node's labels."""

from __future__ import annotations

import pytest

from plugin.publication.node_object.conditions import conditions_of
from plugin.publication.node_object.model import NodeFeature
from tests.plugin.node_object.simulation import Simulation
from tests.plugin.node_object.states import observed

NAMESPACE = "node-feature-discovery"
LABELS = {"nvidia.com/gpu.count": "2"}
FEATURE = NodeFeature(
    NAMESPACE, LABELS, {"grapnel.driver": {"major": "550"}}, {"grapnel.gpu": ({"memory": "81920"}, {"memory": "40960"})}
)
HOUR_S = 3600.0


def running(node: Simulation | None = None) -> Simulation:
    node = node or Simulation()
    node.session.feature(FEATURE)
    node.settle(1)
    return node


def test_it_has_the_published_form() -> None:
    made = running().features[NAMESPACE]
    assert made["apiVersion"] == "nfd.k8s-sigs.io/v1alpha1"
    assert made["metadata"] == {
        "name": "nvidia-features-for-n1",
        "namespace": NAMESPACE,
        "labels": {"nfd.node.kubernetes.io/node-name": "n1"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "1"}],
    }
    assert made["spec"] == {
        "labels": LABELS,
        "features": {
            "flags": {},
            "attributes": {"grapnel.driver": {"elements": {"major": "550"}}},
            "instances": {
                "grapnel.gpu": {"elements": [{"attributes": {"memory": "81920"}}, {"attributes": {"memory": "40960"}}]}
            },
        },
    }


def test_one_that_somebody_removed_is_made_again_with_a_heartbeat() -> None:
    node = running()
    node.features.clear()
    node.settle(HOUR_S)
    assert node.features[NAMESPACE]["spec"]["labels"] == LABELS
    assert node.count("patch nodefeatures") <= 7


def test_the_nodes_own_labels_go_a_minute_after_it_was_made() -> None:
    node = Simulation()
    node.session.label(LABELS)
    node.settle(1)
    node.session.feature(FEATURE)
    node.session.label({})
    node.settle(30)
    assert node.features
    assert node.own_labels() == LABELS
    node.settle(60)
    assert node.own_labels() == {}


@pytest.mark.parametrize("trouble", ["no such resource", "somebody else's"])
def test_what_keeps_it_from_being_made_keeps_labels_and_conditions(trouble: str) -> None:
    node = Simulation()
    if trouble == "no such resource":
        node.namespaces.clear()
    else:
        node.features_are_of = "gpu-feature-discovery"
    node.session.label(LABELS)
    node.settle(1)
    running(node).session.label({})
    node.session.show(conditions_of(observed("", ""), ""))
    node.settle(HOUR_S)
    assert node.own_labels() == LABELS
    assert "GPUsHealthy" in node.conditions
    assert node.logger.lines("features")
    assert node.count("patch nodefeatures") < 30
    node.namespaces.add(NAMESPACE)
    node.features_are_of = ""
    node.settle(HOUR_S)
    assert node.features[NAMESPACE]["spec"]["labels"] == LABELS
    assert node.own_labels() == {}


def test_another_node_of_the_same_name_owns_it_then() -> None:
    node = running()
    node.session.show(conditions_of(observed("", ""), ""))
    node.settle(1)
    node.recreate()
    node.settle(2 * HOUR_S)
    assert node.features[NAMESPACE]["metadata"]["ownerReferences"][0]["uid"] == "2"


def test_one_that_is_given_up_says_nothing_any_more() -> None:
    node = running()
    node.session.feature(NodeFeature(NAMESPACE))
    node.session.label(LABELS)
    node.settle(1)
    assert node.features[NAMESPACE]["spec"] == {"features": {"flags": {}}}
    assert node.own_labels() == LABELS
