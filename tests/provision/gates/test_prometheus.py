"""What is asked of Prometheus' query API, and what its answers come to."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from provision.rollout.gates import ask_once
from provision.rollout.gates.prometheus import MOST_BYTES, Samples, UnansweredError, ask, read_answer
from tests import peers
from tests.provision.gates.samples import FIRING, Api, gate, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "eyJhbGciOi.secret"  # noqa: S105 - a token of nothing


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as made:
        yield made


def url(api: Api, path: str = "") -> str:
    return f"http://127.0.0.1:{api.port}{path}"


def vector(*series: dict[str, str]) -> bytes:
    result = [{"metric": metric, "value": [1, "1"]} for metric in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_the_query_is_asked_as_the_api_has_it(api: Api) -> None:
    api.returns()
    assert ask(gate(url(api, "/prom/"), timeout_seconds=7)) == Samples(0)
    assert api.asked == [{"path": "/prom/api/v1/query", "authorization": None, "query": FIRING, "timeout": "7s"}]


def test_a_token_is_read_before_each_query(api: Api, tmp_path: Path) -> None:
    api.returns()
    file = tmp_path / "token"
    for token in (SECRET, "another"):
        file.write_text(f"{token}\n")
        ask(gate(url(api), token_file=str(file)))
    assert [each["authorization"] for each in api.asked] == [f"Bearer {SECRET}", "Bearer another"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(None, "cannot be read: No such file or directory", id="no file"),
        pytest.param(b"\n", "there is no token", id="empty"),
        pytest.param(b"a\nb", "there is no token", id="two lines"),
        pytest.param(b"\xff\xfe", "it is not ASCII text", id="not text"),
    ],
)
def test_a_token_that_cannot_be_used_is_no_answer(api: Api, tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UnansweredError, match=why):
        ask(gate(url(api), token_file=str(file)))
    assert api.asked == []


def test_a_token_that_nobody_ever_writes_holds_no_gate(tmp_path: Path) -> None:
    """A FIFO in its place was opened, and waited for: no deadline is over a file."""
    os.mkfifo(tmp_path / "token")

    with pytest.raises(UnansweredError, match="not a regular file"):
        ask(gate("https://prometheus.example", token_file=str(tmp_path / "token")))


def test_a_redirect_is_not_followed_and_takes_no_token_along(api: Api, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    api.code, api.body = 302, b""
    with pytest.raises(UnansweredError) as caught:
        ask(gate(url(api), token_file=str(tmp_path / "token")))
    assert str(caught.value) == "what answers is not Prometheus (HTTP status 302)"
    assert len(api.asked) == 1


def test_nobody_there_is_no_answer() -> None:
    with pytest.raises(UnansweredError, match="connection refused"):
        ask(gate("http://127.0.0.1:1"))
    with pytest.raises(UnansweredError):
        ask(gate("https://127.0.0.1:1", ca_file="/nowhere/ca.pem"))


def test_an_answer_that_is_too_long_is_none(api: Api) -> None:
    api.body = b" " * (MOST_BYTES + 1)
    with pytest.raises(UnansweredError, match="more than 4 MiB"):
        ask(gate(url(api)))


@pytest.mark.parametrize("behave", peers.ENDLESS.values(), ids=peers.ENDLESS)
def test_one_that_never_ends_its_answer_is_given_up(behave: peers.Behave) -> None:
    """A byte now and then held its keeper, and `grapnel plan`, for ever."""
    with peers.peer(behave) as port, pytest.raises(UnansweredError, match="no answer within 1 s"):
        ask(gate(f"http://127.0.0.1:{port}", timeout_seconds=1))


def test_a_plan_goes_on_when_no_gate_answers() -> None:
    with peers.peer(peers.ENDLESS["body"]) as port:
        (state,) = ask_once([gate(f"http://127.0.0.1:{port}", timeout_seconds=1)])
    assert (state.is_open, state.is_answered) == (False, False)
    assert "no answer within 1 s" in state.reason


def test_samples_are_named_as_people_know_them() -> None:
    found = read_answer(
        200,
        vector(
            {"__name__": "ALERTS", "alertname": "GpuLost", "instance": "n7:9400", "pod": "x", "severity": "critical"},
            {"instance": "n8"},
            {},
            {"job": "d"},
        ),
    )
    assert found.count == 4
    assert found.shown == (
        'ALERTS{alertname="GpuLost", severity="critical", instance="n7:9400"}',
        '{instance="n8"}',
        "{}",
    )


def test_what_an_answer_brings_along_is_fit_to_be_shown() -> None:
    (shown,) = read_answer(200, vector({"alertname": "a\x1b[2J\nb" + "x" * 5000})).shown
    assert shown.isprintable()
    assert len(shown) <= 120


@pytest.mark.parametrize(
    ("code", "document", "why"),
    [
        pytest.param(
            400,
            {"status": "error", "errorType": "bad_data", "error": "parse error: unexpected end"},
            r"the query was refused \(HTTP status 400\): parse error: unexpected end",
            id="a query that cannot be read",
        ),
        pytest.param(503, {"status": "error", "error": "timed out"}, "HTTP status 503", id="one that took too long"),
        pytest.param(
            200,
            {"status": "success", "data": {"resultType": "vector", "result": []}, "warnings": ["store b is down"]},
            "the answer is not complete: store b is down",
            id="a part did not answer: no alert in it is no answer",
        ),
        pytest.param(
            200,
            {"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}},
            "the query returns a scalar",
            id="a scalar",
        ),
        pytest.param(
            200, {"status": "success", "data": {"resultType": "vector", "result": [7]}}, "cannot be read", id="a number"
        ),
        pytest.param(200, {"status": "success"}, "the query returns a ", id="no data"),
        pytest.param(200, [], "not Prometheus", id="another document"),
        pytest.param(401, {}, "HTTP status 401", id="no permission"),
    ],
)
def test_anything_else_is_no_answer(code: int, document: object, why: str) -> None:
    with pytest.raises(UnansweredError, match=why):
        read_answer(code, json.dumps(document).encode())


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 100_000], ids=["nothing", "HTML", "bytes", "deep"])
def test_what_is_no_json_is_no_answer(body: bytes) -> None:
    with pytest.raises(UnansweredError, match="not Prometheus"):
        read_answer(200, body)
