"""The thread, real TLS and an API server that fails: nothing waits for it, and afterwards the state is right."""

from __future__ import annotations

import itertools
import os
import threading
from typing import TYPE_CHECKING

import pytest

from plugin.publication.node_object.node import ClusterNode
from plugin.publication.node_object.reporter import Reporter
from plugin.publication.node_object.session import Rhythm
from tests.plugin.node_object.api_server import NODE, TOKEN, ApiServer, Failure, write_kubeconfig
from tests.plugin.node_object.states import XID_48, observed, transition
from tests.plugin.node_object.written_log import WrittenLog
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUICK = Rhythm(start_s=0.0, retry_s=0.02)
LABELS = {"nvidia.com/gpu.count": "1"}


class Running:
    """A reporter of one node, its journal, and what its server has."""

    def __init__(self, kubeconfig: Path, server: ApiServer) -> None:
        self.server = server
        self.logger = WrittenLog()
        self._reporter = Reporter(NODE, str(kubeconfig), {}, self.logger, QUICK)
        self._reporter.start()
        self.node = ClusterNode(self._reporter, self.logger)

    def status(self) -> str:
        return self.server.state.conditions.get("GPUsHealthy", {}).get("status", "")

    def wait(self, holds: Callable[[], bool]) -> None:
        wait_until(holds, lambda: f"{self.logger.text()}\n{self.server.state}")

    def wait_for_line(self, words: str) -> None:
        self.wait(lambda: bool(self.logger.lines(words)))


@pytest.fixture
def running(server: ApiServer, tmp_path: Path) -> Iterator[Running]:
    made = Running(write_kubeconfig(tmp_path / "config", server), server)
    yield made
    made.node.close()


def test_conditions_labels_and_events_arrive_over_one_connection(running: Running) -> None:
    running.node.label(LABELS)
    running.node.show(observed(XID_48, transitions=(transition(),)))
    state = running.server.state
    running.wait(lambda: bool(state.events and state.labels and state.conditions))
    assert state.labels == {"nvidia.com/gpu.count": ("1", "grapnel-node")}
    event = next(iter(state.events.values()))
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-1"}
    assert running.logger.text() == ""


@pytest.mark.slow
def test_an_outage_is_one_line_and_then_the_latest_state_is_there(running: Running) -> None:
    running.node.show(observed(""))
    running.wait(lambda: running.status() == "True")
    running.server.close()
    reasons = itertools.cycle((XID_48, ""))

    def is_told() -> bool:
        """A connection that was open already may take one more state, so there is a new one until it is gone."""
        running.node.show(observed(next(reasons)))
        return bool(running.logger.lines("connection refused"))

    running.wait(is_told)
    # Not what the server was told last: with nothing to say, the reporter would not call before a heartbeat is due.
    reason, latest = (XID_48, "False") if running.status() == "True" else ("", "True")
    running.node.show(observed(reason))
    with running.server.open_again() as again:
        running.wait(lambda: running.status() == latest)
        running.wait_for_line("resolved")
        assert again.state is running.server.state
    assert len(running.logger.lines("connection refused")) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "line"),
    [
        pytest.param(Failure(429, headers=(("Retry-After", "0"),)), "(429)", id="too many"),
        pytest.param(Failure(500), "(500)", id="an error inside"),
        pytest.param(Failure(410), "(410)", id="gone"),
        pytest.param(Failure(307, headers=(("Location", "https://evil.example/"),)), "redirects", id="somewhere else"),
        pytest.param(Failure(404), "no such node", id="no node yet"),
        pytest.param(Failure(403), "forbids", id="forbidden"),
        pytest.param(Failure(200, body=b"<html>"), "no json object", id="a web page"),
        pytest.param(Failure(raw=b"\0" * 99), "not http", id="something else"),
    ],
)
def test_what_passes_is_told_and_tried_again(running: Running, failure: Failure, line: str) -> None:
    running.server.state.failures += [failure, failure]
    running.node.show(observed(""))
    running.wait(lambda: running.status() == "True")
    assert len(running.logger.lines(line)) == 1
    running.wait_for_line("resolved")


def test_a_token_that_is_exchanged_is_read_again_after_it_was_refused(server: ApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old-and-expired")
    running = Running(write_kubeconfig(tmp_path / "config", server, {"tokenFile": str(token)}), server)
    running.node.show(observed(""))
    running.wait_for_line("(401)")
    server.state.tokens.add(TOKEN)
    token.write_text(TOKEN)
    running.wait(lambda: running.status() == "True")
    running.node.close()
    assert "old-and-expired" not in running.logger.text()
    assert TOKEN not in running.logger.text()


def test_after_a_refusal_everything_is_read_again_even_if_it_looks_the_same(server: ApiServer, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "config", server, {"token": "x" * len(TOKEN)})
    times = kubeconfig.stat()
    running = Running(kubeconfig, server)
    running.node.show(observed(""))
    running.wait_for_line("(401)")
    server.state.tokens.add(TOKEN)
    write_kubeconfig(kubeconfig, server, {"token": TOKEN})
    os.utime(kubeconfig, ns=(times.st_atime_ns, times.st_mtime_ns))
    running.wait(lambda: running.status() == "True")
    running.node.close()


def test_a_kubeconfig_that_comes_later_is_found(server: ApiServer, tmp_path: Path) -> None:
    running = Running(tmp_path / "config", server)
    running.node.show(observed(""))
    running.wait_for_line("no such file")
    write_kubeconfig(tmp_path / "config", server)
    running.wait(lambda: running.status() == "True")
    running.node.close()


@pytest.mark.slow
def test_a_server_that_hangs_makes_nobody_wait(running: Running) -> None:
    answered = threading.Event()
    running.server.state.standing["nodes"] = Failure(until=answered)
    running.node.show(observed(""))
    running.wait(lambda: running.server.count("GET") == 1)
    for number in range(1000):
        running.node.show(observed("a" if number % 2 else "", transitions=(transition(),)))
    assert running.server.count("PATCH") == 0, "a thousand states are taken while one call hangs"
    running.server.state.standing.clear()
    answered.set()


def test_the_last_words_are_said_before_the_end(server: ApiServer, tmp_path: Path) -> None:
    late = Reporter(NODE, str(write_kubeconfig(tmp_path / "config", server)), {}, WrittenLog(), Rhythm(start_s=60))
    late.start()
    node = ClusterNode(late, WrittenLog())
    node.show(observed("", transitions=(transition(),)))
    node.close()
    assert [event["reason"] for event in server.state.events.values()] == ["GPUXidError"]
    assert not late._thread.is_alive()


def test_bad_labels_are_left_out_and_told(running: Running) -> None:
    running.node.label({**LABELS, "other.example/x": "1", "nvidia.com/bad": "a b"})
    running.wait(lambda: "nvidia.com/gpu.count" in running.server.state.labels)
    assert len(running.server.state.labels) == 1
    assert running.logger.lines("labels that cannot be applied: other.example/x, nvidia.com/bad")


@pytest.mark.slow
def test_events_of_an_outage_are_bounded(running: Running) -> None:
    running.server.state.standing["/"] = Failure(503)
    for number in range(2000):
        running.node.show(observed("", transitions=(transition(cause=f"xid {number}"),)))
    assert len(list(running._reporter._session._book)) == 64
