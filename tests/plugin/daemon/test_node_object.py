from __future__ import annotations

import asyncio
import os

import pytest

from plugin.base.log import Logger
from plugin.daemon.optional.node_object import LazyNodeObject, NoNodeObject, OwnNode, node_name, node_object
from plugin.settings.node_config import NodeConfig
from tests.plugin.node_object.states import observed


@pytest.mark.parametrize(
    ("config", "environment", "expected"),
    [
        pytest.param(NodeConfig(node_name="a"), {"NODE_NAME": "b"}, "a", id="node.json first"),
        pytest.param(NodeConfig(), {"NODE_NAME": "b"}, "b", id="then what a pod was told"),
        pytest.param(NodeConfig(), {}, os.uname().nodename.lower(), id="then the host, in small letters"),
    ],
)
def test_the_name_of_the_node(config: NodeConfig, environment: dict[str, str], expected: str) -> None:
    assert node_name(config, environment) == expected


def test_nothing_is_kept_up_to_date_where_nobody_asked() -> None:
    assert isinstance(node_object(NodeConfig(), Logger()), NoNodeObject)
    assert isinstance(node_object(NodeConfig(kubernetes_api="/a"), Logger()), LazyNodeObject)


def test_one_that_is_closed_at_once_never_begins() -> None:
    async def run() -> None:
        node = LazyNodeObject(NodeConfig(kubernetes_api="/nowhere"), Logger())
        node.show(observed(""))
        node.close()
        node._open()
        node.show(observed(""))
        assert isinstance(node._node, NoNodeObject)

    asyncio.run(run())


def test_another_node_gets_the_labels_of_the_last_one_and_the_same_node_nothing_again() -> None:
    async def run() -> None:
        node = OwnNode(NodeConfig(), Logger())
        node.label({"nvidia.com/gpu.count": "2"})
        first = node._node
        await node.move(NodeConfig(refresh_s=1))
        assert node._node is first
        await node.move(NodeConfig(kubernetes_api="/nowhere"))
        moved = node._node
        assert isinstance(moved, LazyNodeObject)
        assert moved._waiting is not None
        assert len(moved._waiting) == 1
        node.close()

    asyncio.run(run())
