"""What a Node says is wrong with its GPUs."""

from __future__ import annotations

import msgspec
import pytest

from provision.cluster.kubernetes.nodes.node_view import ailment_of, view_of
from provision.cluster.kubernetes.objects.nodes import Node
from provision.rollout.model import NodeView

LOST = "GPU 3 (GPU-02bdf2c8): it has fallen off the bus (XID 79)"


def node(*conditions: dict[str, str]) -> Node:
    ready = {"type": "Ready", "status": "True"}
    return msgspec.convert({"metadata": {"name": "n1"}, "status": {"conditions": [ready, *conditions]}}, Node)


def healthy(status: str, message: str = "", reason: str = "") -> dict[str, str]:
    return {"type": "GPUsHealthy", "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("condition", "ailment"),
    [
        pytest.param(healthy("False", LOST), LOST, id="unhealthy"),
        pytest.param(healthy("False", "", "GPUsUnhealthy"), "GPUsUnhealthy", id="unhealthy without a message"),
        pytest.param(healthy("True", "8 GPUs can be used"), "", id="healthy"),
        pytest.param(healthy("Unknown", "the node was released"), "", id="released: nobody knows"),
        pytest.param({"type": "DiskPressure", "status": "False", "message": "none"}, "", id="another condition"),
        pytest.param(healthy("False", "\x1b[2Jgone"), r"\x1b[2Jgone", id="nothing reaches a terminal"),
    ],
)
def test_a_node_tells_what_is_wrong_with_its_gpus(condition: dict[str, str], ailment: str) -> None:
    assert ailment_of(node(condition)) == ailment
    seen = view_of("n1", node(condition), "cluster test")
    assert isinstance(seen, NodeView)
    assert seen.ailment == ailment


def test_a_node_without_the_daemon_says_nothing() -> None:
    assert ailment_of(node()) == ""


def test_a_message_of_unusual_length_is_cut() -> None:
    assert len(ailment_of(node(healthy("False", "x" * 10_000)))) <= 300
