"""MachineConfigPools that are paused: told of, where they may be listed, and never waited for."""

from __future__ import annotations

from typing import Any

import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.nodes.elsewhere import PAUSED_BY_OPERATOR, POOLS, Pools
from provision.declaration.spec.model import Tool
from tests.provision.cluster.fakes import Clock, ScriptedServer, answer, refusal
from tests.provision.rollout.fakes import view

PLAIN = "its MachineConfigPool worker is paused: the machine-config-operator changes nothing until it is resumed"


def pool(*, paused: bool = True, wanted: str = "r-1", has: str = "r-1", **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "worker", "annotations": annotations},
        "spec": {"paused": paused, "configuration": {"name": wanted, "source": [{"name": "00-worker"}]}},
        "status": {"configuration": {"name": has}, "machineCount": 3},
    }


def remarks(server: ScriptedServer, *respect: Tool, where: str = "worker") -> dict[str, str]:
    clock = Clock()
    return dict(Pools(Api(server, sleep=clock.sleep, clock=clock), respect).remarks([view("n1", pool=where)]))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param(pool(paused=False), {}, id="it is at work"),
        pytest.param(pool(), {"worker": PLAIN}, id="a person has paused it"),
        pytest.param(
            pool(wanted="r-2"),
            {"worker": f"{PLAIN}, which then brings r-2, and may reboot it"},
            id="with something due",
        ),
        pytest.param(
            pool(**{PAUSED_BY_OPERATOR: "true"}),
            {"worker": PLAIN.replace("is paused", "is paused by NVIDIA's maintenance operator")},
            id="the maintenance operator has paused it",
        ),
        pytest.param({"metadata": {"name": "worker"}}, {}, id="it says nothing"),
    ],
)
def test_what_is_told_of_a_pool(found: dict[str, Any], told: dict[str, str]) -> None:
    server = ScriptedServer(answer(body={"items": [found]}))
    assert remarks(server, Tool.MACHINE_CONFIG_OPERATOR) == told
    assert [each.path for each in server.requests] == [POOLS]


@pytest.mark.parametrize("code", [403, 404])
def test_without_the_permission_or_the_api_nothing_is_told(code: int) -> None:
    assert remarks(ScriptedServer(refusal(code)), Tool.MACHINE_CONFIG_OPERATOR) == {}


def test_nobody_is_asked_where_there_is_no_pool_or_the_tool_is_not_respected() -> None:
    server = ScriptedServer()
    assert remarks(server, Tool.MACHINE_CONFIG_OPERATOR, where="") == {}
    assert remarks(server, Tool.KURED) == {}
    assert server.requests == []
