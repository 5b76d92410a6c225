"""Allocations explained, and devices refused that others hold: the whole daemon, a kubelet, and the tool."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from lab.kubelet import INIT, AllocationRefused, Container, Kubelet, Pod
from lab.podresources.server import serving
from plugin.admin.client import ask
from plugin.cli import main
from plugin.driver.snapshot import LostGpu, Snapshot
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import VERSION, gpu, gpus, write_driver
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.functional  # whole daemons, one process a test

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/contracts/explanation/schema.json").read_text())


class Node:
    """A daemon with four GPUs, and a kubelet that lists its pods."""

    def __init__(self, daemon: DaemonProcess, kubelet: Kubelet, capsys: pytest.CaptureFixture[str]) -> None:
        self.daemon, self.kubelet, self._capsys = daemon, kubelet, capsys
        self.config = str(daemon.node / "node.json")
        self.answer: Callable[[], bytes] = kubelet.device_manager.list_response

    @contextmanager
    def listing(self) -> Iterator[None]:
        with serving(self.daemon.kubelet_root, lambda: self.answer()):  # noqa: PLW0108 - a test may exchange it
            yield

    def explain(self, *arguments: str) -> dict[str, Any]:
        """Return what the tool says as JSON; it fits its contract."""
        assert main(["explain", "--json", "--config", self.config, *arguments]) == 0
        found: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        jsonschema.validate(found, SCHEMA)
        return found

    def text(self, *arguments: str) -> tuple[int, str, str]:
        code = main([*arguments, "--config", self.config])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def pods(self) -> list[list[str]]:
        return [[one["pod"] for one in each["pods"]] for each in self.explain()["allocations"]]

    def wait_for_pods(self, *pods: list[str]) -> None:
        wait_until(lambda: self.pods() == list(pods), lambda: f"{self.pods()} {self.daemon.log()}")


@pytest.fixture
def node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Node]:
    with DaemonProcess(tmp_path, 4) as daemon, Kubelet(daemon.kubelet_root) as kubelet:
        kubelet.wait_for_devices(RESOURCE, 4)
        yield Node(daemon, kubelet, capsys)


def test_a_pods_devices_are_explained(node: Node) -> None:
    with node.listing():
        node.kubelet.admit(Pod("train", (Container("fetch", 1, INIT), Container("main", 2))))
        node.wait_for_pods(["train"], [])
        (one,) = node.explain("default/train")["allocations"]
        assert one["followed"] is True
        assert one["preference"]["required"] == [gpu(0).uuid]
        assert one["preference"]["chosen"] == one["devices"] == [gpu(0).uuid, gpu(1).uuid]
        assert [each["devices"] for each in one["preference"]["candidates"]] == [
            [gpu(0).uuid, gpu(1).uuid],
            [gpu(2).uuid, gpu(3).uuid],
        ]
        code, text, _ = node.text("explain", "train")
        assert code == 0
        assert "pod default/train, container main: listed" in text
        assert "asked for 2 of 4 free, 0 required: preferred 0,1" in text
        assert "the kubelet followed it" in text


def test_a_kubelet_that_takes_others_or_does_not_ask_is_told_apart(node: Node) -> None:
    endpoint = node.kubelet.assignments
    assert endpoint == {}
    node.kubelet.allocate(RESOURCE, 4, "no choice")
    node.kubelet.release("no choice")
    free = node.kubelet.free(RESOURCE)
    connection = node.kubelet._endpoints[RESOURCE]
    assert connection.preferred(free, [], 1) == [gpu(0).uuid]
    connection.allocate([gpu(3).uuid])
    others, no_choice = node.explain()["allocations"]
    assert (others["followed"], no_choice["followed"]) == (False, None)
    assert no_choice["preferenceNote"] == "the kubelet did not ask: there was no choice"
    assert "not as preferred" in node.text("explain")[1]


def test_a_device_that_another_pod_holds_is_refused_by_name_and_explained(node: Node) -> None:
    with node.listing():
        node.kubelet.admit(Pod("first", (Container("main", 1),)))
        node.wait_for_pods(["first"])
        node.kubelet.device_manager.allocated.clear()  # as a kubelet recalculates in the middle of one
        with pytest.raises(AllocationRefused, match="is held by 'default/first as nvidia"):
            node.kubelet.admit(Pod("second", (Container("main", 4),)))  # there is no other choice
        node.kubelet.admit(Pod("third", (Container("main", 1),)))
        refused, first = node.explain("0")["allocations"]
        assert "held by 'default/first" in refused["refused"]
        assert first["pods"][0]["pod"] == "first"
        node.wait_for_pods(["third"], [], ["first"])


def test_a_kubelet_that_does_not_say_refuses_nothing_and_holds_nobody_up(node: Node) -> None:
    hung = threading.Event()
    with node.listing():
        first = Pod("first", (Container("main", 1),))
        node.kubelet.admit(first)
        node.wait_for_pods(["first"])

        def hang() -> bytes:
            hung.wait(60)
            return b""

        node.answer = hang
        node.kubelet.device_manager.end(first)
        node.kubelet.admit(Pod("second", (Container("main", 4),)))  # would fail after the stand-in's time limit
        hung.set()
    latest = node.explain()["allocations"][0]
    assert (latest["pods"], len(latest["devices"])) == ([], 4)
    assert "the kubelet did not answer" in latest["podsNote"]


def test_a_devices_life_is_told_with_what_ended_it(node: Node) -> None:
    lost = LostGpu(3, gpu(3).uuid, "gpu is lost")
    write_driver(node.daemon.driver, Snapshot(VERSION, gpus(3), (lost,)))
    node.kubelet.wait_for_devices(RESOURCE, 3)
    write_driver(node.daemon.driver, Snapshot(VERSION, gpus(4)))
    node.kubelet.wait_for_devices(RESOURCE, 4)
    assert main(["health", "set", gpu(3).uuid, "unhealthy", "--reason", "smoke", "--config", node.config]) == 0
    node.kubelet.wait_for_devices(RESOURCE, 3)
    node.text("health", "clear", gpu(3).uuid)
    (device,) = node.explain("3")["devices"]
    told = [f"{change['what']} {change['cause']}".strip() for change in device["history"]]
    assert [one for one in told if one != "verdict verdict"] == [
        *("seen", "opened lost", "unhealthy", "closed lost", "healthy", "unhealthy", "healthy"),
    ]
    reasons = " | ".join(change["reason"] for change in device["history"])
    assert "not seen again for 0.1 s, and the gpu is idle and answers" in reasons
    assert "set unhealthy by hand: smoke" in reasons
    assert "the verdict by hand was cleared" in reasons


def test_a_release_is_part_of_the_story(node: Node) -> None:
    node.text("release")
    code, text, _ = node.text("explain")
    assert code == 0
    assert text.startswith("released since ")
    node.text("resume")
    assert [change["what"] for change in node.explain()["node"]] == ["released", "resumed"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_what_happened_is_told_without_a_daemon_and_by_the_next_one(node: Node, end: signal.Signals) -> None:
    with node.listing():
        node.kubelet.admit(Pod("train", (Container("main", 1),)))
        node.wait_for_pods(["train"])
        node.daemon.signal(end)
        wait_until(lambda: not node.daemon.is_running(), node.daemon.log)
        found = node.explain("train")
        assert found["problems"] == ["the daemon does not run: what follows is how it was when it ended"]
        assert [each["pod"] for each in found["allocations"][0]["pods"]] == ["train"]
        node.daemon.start()
        node.kubelet.wait_for_devices(RESOURCE, 4)
        node.kubelet.admit(Pod("next", (Container("main", 1),)))
        node.wait_for_pods(["next"], ["train"])
        states = node.explain("1")["devices"][0]["history"]
        assert [change["what"] for change in states] == ["seen"]


def test_what_nobody_knows_is_an_expected_failure(node: Node) -> None:
    code, _, error = node.text("explain", "nobody")
    assert code == 1
    assert "grapnel-node: nothing is known of 'nobody'" in error
    assert "journalctl -t grapnel-hook" in error
    node.daemon.stop()
    assert node.text("explain", "nobody")[0] == 1


@pytest.mark.parametrize(
    "request_", [{"about": 1}, {"last": "all"}, {"last": True}], ids=["about a number", "last in words", "last is true"]
)
def test_questions_that_are_none_are_refused(node: Node, request_: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="about must be a text, last a whole number"):
        ask(node.daemon.node / "run/node.sock", {"verb": "explain", **request_}, 10)


def test_a_history_that_cannot_be_understood_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/history.jsonl").write_bytes(os.urandom(100) + b"\n")
    with DaemonProcess(tmp_path) as daemon, Kubelet(daemon.kubelet_root) as kubelet:
        kubelet.wait_for_devices(RESOURCE, 2)
        daemon.wait_for_log("explain starts from nothing; the file is kept under another name")
        kubelet.allocate(RESOURCE, 1, "pod")
    assert (tmp_path / "state/history.jsonl.damaged").exists()
