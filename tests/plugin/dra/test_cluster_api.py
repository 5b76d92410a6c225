"""A connection that several threads ask on, one at a time, and that nobody has to wait for to hang up."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import ClusterError
from plugin.dra import cluster_api
from plugin.dra.cluster_api import ClusterApi
from plugin.publication.node_object.api.connector import Connector
from plugin.publication.node_object.api.messages import ApiResponse, Request
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ANY = Request("GET", "/", "get", "resourceclaims")


class SlowConnection:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.answers = threading.Event()
        self.is_open = True

    def call(self, _request: Request) -> ApiResponse:
        self.calls += 1
        self.answers.wait()
        return ApiResponse(200, b"{}")

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowConnection]:
    made = SlowConnection()
    monkeypatch.setattr(Connector, "connect", lambda _connector, _limits: made)
    yield made
    made.answers.set()


def test_while_the_server_is_away_all_that_ask_wait_for_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart of the kubelet each of a node's claims waited for time-outs of those before it."""
    asked, tried, fails = [], [], threading.Event()

    def connect(_connector: Connector, _limits: object) -> None:
        tried.append(1)
        fails.wait()
        raise ClusterError("no answer", "is it up?")

    def now() -> float:
        asked.append(1)
        return float(len(asked))

    monkeypatch.setattr(Connector, "connect", connect)
    monkeypatch.setattr(cluster_api, "time", SimpleNamespace(monotonic=now))
    api = ClusterApi("kubelet.conf", {})
    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(api.ask, ANY) for _ in range(3)]
        wait_until(lambda: len(asked) == len(calls))
        fails.set()
        assert {str(call.exception()) for call in calls} == {"no answer"}
    assert len(tried) == 1
    with pytest.raises(ClusterError, match="no answer"):
        api.ask(ANY)
    assert len(tried) == 2  # whoever asks after that has the server asked


class Expired:
    """Answers until its token has run out."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def call(self, _request: Request) -> ApiResponse:
        self.left -= 1
        return ApiResponse(200, b"{}") if self.left >= 0 else ApiResponse(401, b"{}")

    def close(self) -> None:
        """Nothing is open."""


def test_a_token_that_runs_out_on_a_kept_connection_is_read_again_and_nobody_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Expired] = []

    def connect(_connector: Connector, _limits: object) -> Expired:
        made.append(Expired(1 if len(made) < 2 else 0))
        return made[-1]

    monkeypatch.setattr(Connector, "connect", connect)
    api = ClusterApi("in-cluster", {})
    assert api.ask(ANY) == {}
    assert api.ask(ANY) == {}
    assert len(made) == 2
    with pytest.raises(ClusterError) as raised:
        api.ask(ANY)
    assert (raised.value.status, len(made)) == (401, 3), "a token that was just read is asked with once"


def test_hanging_up_waits_for_no_call_and_ends_those_that_wait(connection: SlowConnection) -> None:
    api = ClusterApi("kubelet.conf", {})
    with ThreadPoolExecutor() as threads:
        first = threads.submit(api.ask, ANY)
        wait_until(lambda: connection.calls == 1)
        second = threads.submit(api.ask, ANY)
        closing = threads.submit(api.close)
        try:
            closing.result(timeout=10)
        finally:
            connection.answers.set()
        assert first.result() == {}
        with pytest.raises(ClusterError, match="nobody"):
            second.result()
    assert not connection.is_open
