"""`grapnel-node health`: what people decide, and what they see."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.base.log import Logger
from plugin.cli import main
from plugin.devices.health.keeper import Clock, HealthKeeper
from plugin.devices.health.model import Verdict
from plugin.devices.health.store import VERDICTS_FILE, read_verdicts
from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.reading import XidEvent
from plugin.driver.snapshot import Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpus

if TYPE_CHECKING:
    from pathlib import Path

A = "GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109"
B = "GPU-1b7e5d0c-2f6a-4c3d-9a41-6f0e8d2c7b55"


class Node:
    """A node without a daemon."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.config = folder / "node.json"
        keys = {"stateFolder": str(self.state), "adminSocket": str(folder / "node.sock")}
        self.config.write_text(json.dumps(keys))

    def health(self, *words: str) -> int:
        return main(["health", *words, "--config", str(self.config)])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_verdict_is_remembered_replaced_and_cleared(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert node.health("set", A, "unhealthy", "--reason", "smells of smoke") == 0
    assert capsys.readouterr().out.splitlines() == [
        "note: the daemon does not run: the verdict counts when it starts",
        f"{A} is unhealthy by hand: smells of smoke",
    ]
    assert node.health("set", B, "healthy", "--reason", "cable was loose") == 0
    assert node.health("set", A, "healthy", "--reason", "fan was loose") == 0
    verdicts = read_verdicts(node.state)
    assert [(uuid, verdict.is_healthy, verdict.reason) for uuid, verdict in verdicts.items()] == [
        (B, True, "cable was loose"),
        (A, True, "fan was loose"),
    ]
    assert node.health("clear", A) == 0
    assert node.health("clear", A) == 0
    assert list(read_verdicts(node.state)) == [B]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(["set", "1", "healthy", "--reason", "x"], "the daemon does not run", id="an index, no daemon"),
        pytest.param(["set", "MIG-1", "healthy", "--reason", "x"], "neither the uuid of a gpu", id="a MIG device"),
        pytest.param(["set", A, "healthy", "--reason", " "], "one line of 1 to 256", id="no reason"),
        pytest.param(["set", A, "healthy", "--reason", "a\nb"], "one line of 1 to 256", id="two lines"),
        pytest.param(["set", A, "healthy", "--reason", "x" * 257], "one line of 1 to 256", id="a long story"),
    ],
)
def test_what_cannot_be_decided_is_an_expected_failure(
    node: Node, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert node.health(*words) == 1
    said = capsys.readouterr()
    assert (said.out, problem in said.err) == ("", True)
    assert not (node.state / VERDICTS_FILE).exists()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["set", A, "healthy"], id="without a reason"),
        pytest.param(["set", A, "ill", "--reason", "x"], id="another word"),
        pytest.param([], id="nothing"),
    ],
)
def test_usage(node: Node, words: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        node.health(*words)
    assert raised.value.code == 2


def test_a_file_that_cannot_be_understood_is_not_written_over(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.state.mkdir()
    (node.state / VERDICTS_FILE).write_text("{")
    assert node.health("set", A, "healthy", "--reason", "x") == 1
    assert f"{node.state / VERDICTS_FILE} cannot be understood" in capsys.readouterr().err
    assert (node.state / VERDICTS_FILE).read_text() == "{"


def test_everything_that_is_open_is_shown(node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree())
    first, second = (device.gpu.uuid for device in inventory.devices)
    clock = Clock(tmp_path, utc=lambda: "2026-09-01T10:00:00Z")
    keeper = HealthKeeper(node.state, clock, Logger())
    keeper.hear((XidEvent(first, 48), XidEvent(second, 31)))
    keeper.judge(inventory, {})
    node.health("set", second, "unhealthy", "--reason", "smells of smoke")
    verdict = read_verdicts(node.state)[second]
    assert verdict == Verdict(is_healthy=False, reason="smells of smoke", since=verdict.since)
    capsys.readouterr()
    assert node.health("show") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{first}  unhealthy",
        "  xid 48: double-bit memory error (since 2026-09-01T10:00:00Z); needs a reset of the GPU",
        f"{second}  unhealthy",
        f"  by hand since {verdict.since}: smells of smoke",
        "  xid 31: memory page fault (since 2026-09-01T10:00:00Z); needs nothing: the application's own error",
    ]
    assert node.health("show", "--json") == 0
    shown = json.loads(capsys.readouterr().out)["gpus"]
    assert shown[first]["unhealthy"] == "xid 48: double-bit memory error; needs a reset of the GPU"
    assert shown[second]["verdict"] == {"healthy": False, "reason": "smells of smoke", "since": verdict.since}
