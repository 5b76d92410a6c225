"""A watch of one Node against an API server that fails: what is heard, and when."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.publication.node_object.label_follower import LabelFollower, watch_node
from tests.plugin.node_object.api_server import NODE, ApiServer, Failure, write_kubeconfig
from tests.plugin.node_object.written_log import WrittenLog
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LABEL = "nvidia.com/device-plugin.config"


class Following:
    """A follower and what it heard."""

    def __init__(self, kubeconfig: Path, server: ApiServer) -> None:
        self.server = server
        self.logger = WrittenLog()
        self.heard: list[str] = []
        self.follower = LabelFollower(NODE, LABEL, str(kubeconfig), {}, self.heard.append, self.logger, retry_s=0.02)
        self.follower.start()

    def wait_for(self, *values: str) -> None:
        def is_heard() -> bool:
            return [each for n, each in enumerate(self.heard) if each != ([None, *self.heard][n])] == list(values)

        wait_until(is_heard, lambda: f"{self.heard}\n{self.logger.text()}")


@pytest.fixture
def following(server: ApiServer, tmp_path: Path) -> Iterator[Following]:
    made = Following(write_kubeconfig(tmp_path / "config", server), server)
    yield made
    made.follower.stop()
    server.state.ended += 1


def put(server: ApiServer, value: str | None) -> None:
    labels = {key: pair for key, pair in server.state.labels.items() if key != LABEL}
    server.state.labels = labels if value is None else {**labels, LABEL: (value, "kubectl")}


def test_the_value_is_heard_at_first_and_whenever_it_changes(following: Following, server: ApiServer) -> None:
    following.wait_for("")
    put(server, "a100")
    following.wait_for("", "a100")
    put(server, None)
    following.wait_for("", "a100", "")
    assert server.count("GET") == 1, "one watch, and nothing besides"


def test_a_watch_that_ends_is_begun_again_and_misses_nothing(following: Following, server: ApiServer) -> None:
    following.wait_for("")
    server.state.standing["watch"] = Failure(503)
    server.state.ended += 1
    wait_until(lambda: bool(following.logger.lines("refuses watch nodes (503)")), following.logger.text)
    put(server, "a100")
    del server.state.standing["watch"]
    following.wait_for("", "a100")
    assert following.logger.lines("msg=resolved")


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        pytest.param(Failure(403, "nodes is forbidden"), 'allow verb \\"watch\\" on \\"nodes\\"', id="not allowed"),
        pytest.param(Failure(410, "too old"), "refuses watch nodes (410)", id="too old"),
        pytest.param(Failure(200, body=b"[]\n"), "no form that is known", id="not an event"),
        pytest.param(Failure(200, body=b"nonsense\n"), "no form that is known", id="not json"),
        pytest.param(
            Failure(200, body=json.dumps({"type": "ERROR", "object": {"message": "it broke"}}).encode() + b"\n"),
            "ends the watch of the node: it broke",
            id="an error in the watch",
        ),
    ],
)
def test_what_goes_wrong_is_said_and_tried_again(
    following: Following, server: ApiServer, failure: Failure, words: str
) -> None:
    following.wait_for("")
    server.state.standing["watch"] = failure
    server.state.ended += 1
    wait_until(lambda: bool(following.logger.lines(words)), following.logger.text)
    put(server, "t4")
    del server.state.standing["watch"]
    following.wait_for("", "t4")


def test_an_outage_is_over_when_the_server_is_back(following: Following, server: ApiServer) -> None:
    following.wait_for("")
    server.state.ended += 1
    server.close()
    put(server, "a100")
    with server.open_again() as again:
        wait_until(lambda: "a100" in following.heard, following.logger.text)
        again.state.ended += 1


def test_an_api_server_that_lags_behind_takes_nothing_back(following: Following, server: ApiServer) -> None:
    following.wait_for("")
    put(server, "a100")
    following.wait_for("", "a100")
    told = server.state.told
    server.state.version -= 1
    put(server, "t4")
    wait_until(lambda: server.state.told > told, following.logger.text)
    server.state.version += 2
    put(server, "h100")
    following.wait_for("", "a100", "h100")


def test_a_node_that_was_recreated_begins_again(following: Following, server: ApiServer) -> None:
    following.wait_for("")
    server.state.uid, server.state.version = "another", 1
    put(server, "t4")
    following.wait_for("", "t4")


def test_who_has_stopped_hears_nothing(following: Following, server: ApiServer) -> None:
    following.wait_for("")
    following.follower.stop()
    put(server, "a100")
    wait_until(lambda: not following.follower._thread.is_alive(), following.logger.text)
    assert following.heard == [""]


def test_only_this_node_is_asked_for() -> None:
    request = watch_node("node-1", 600)
    assert "fieldSelector=metadata.name%3Dnode-1" in request.path
    assert "resourceVersion=0" in request.path
    assert (request.verb, request.resource) == ("watch", "nodes")
    assert "PartialObjectMetadata" in request.accept
