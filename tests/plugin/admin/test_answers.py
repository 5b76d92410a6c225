"""How many GPUs each interface is said to give, and how many wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from plugin.admin.answers import Answers
from plugin.daemon.state import State
from plugin.settings.node_config import NodeConfig

WAITS = (("GPU-1", "ml/train as nvidia.com/gpu"), ("GPU-2", "ml/train as nvidia.com/gpu"))


@pytest.mark.parametrize(
    ("interface", "said"),
    [
        ("devicePlugin", {"devicePlugin": {"offered": 4, "held": 3}}),
        ("dra", {"dra": {"offered": 2, "held": 5}}),
        ("both", {"devicePlugin": {"offered": 4, "held": 3}, "dra": {"offered": 2, "held": 5}}),
    ],
)
def test_what_waits_for_a_claim_and_what_waits_for_a_pod_is_told(interface: str, said: dict[str, Any]) -> None:
    nobody: Any = SimpleNamespace()
    offering: Any = SimpleNamespace(offered=4, waits=WAITS)
    claims: Any = SimpleNamespace(offered=2, held=5, still_held=1, divided=frozenset())
    answers = Answers(
        State(),
        nobody,
        offering,
        nobody,
        lambda: None,
        claims=claims,
        config=lambda: NodeConfig(interface=interface),
        limits=nobody,
        mps=nobody,
    )
    found = asyncio.run(answers.answer({"verb": "status"}))
    assert found["interfaces"] == said
    assert found["held"] == sum(each["held"] for each in said.values())
