from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.base.log import Logger
from plugin.publication.metrics.serving.endpoint import MetricsService
from plugin.system.http.messages import HttpResponse, HTTPStatus, parse_head, say


def refuse(head: bytes) -> HttpResponse | None:
    """Return why a request is not answered with the page, None where it is."""

    async def page() -> bytes:
        return b""

    parsed = parse_head(head)
    if parsed is None:
        return say(HTTPStatus.BAD_REQUEST, "no request")
    found = MetricsService(page, Logger()).expect(parsed)
    return found if isinstance(found, HttpResponse) else None


@pytest.mark.parametrize(
    ("line", "status"),
    [
        pytest.param(b"GET /metrics HTTP/1.1", None, id="a scrape"),
        pytest.param(b"GET /metrics HTTP/1.0", None, id="a scrape of an old client"),
        pytest.param(b"GET /metrics?name[]=up HTTP/1.1", None, id="a scrape with a query"),
        pytest.param(b"GET / HTTP/1.1", 404, id="another page"),
        pytest.param(b"GET /metrics/ HTTP/1.1", 404, id="a folder"),
        pytest.param(b"GET http://node/metrics HTTP/1.1", 404, id="a proxy's form"),
        pytest.param(b"POST /metrics HTTP/1.1", 405, id="another method"),
        pytest.param(b"HEAD /metrics HTTP/1.1", 405, id="the head alone"),
        pytest.param(b"GET /metrics HTTP/2.0", 400, id="another protocol"),
        pytest.param(b"GET /metrics", 400, id="HTTP/0.9"),
        pytest.param(b"GET  /metrics HTTP/1.1", 400, id="two blanks"),
        pytest.param(b"GET /\x00 HTTP/1.1", 400, id="a zero byte"),
        pytest.param(b"GET /" + b"a" * 2000 + b" HTTP/1.1", 400, id="a long path"),
        pytest.param(b"\x16\x03\x01\x02\x00", 400, id="TLS"),
        pytest.param(b"", 400, id="an empty line"),
    ],
)
def test_requests(line: bytes, status: int | None) -> None:
    answer = refuse(line + b"\r\nHost: node\r\n\r\n")
    assert (answer and answer.status) == status


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_answered_or_refused(head: bytes) -> None:
    answer = refuse(head)
    assert answer is None or answer.to_bytes().startswith(b"HTTP/1.1 4")


def test_an_answer_says_its_length_and_that_it_is_the_last() -> None:
    assert HttpResponse(HTTPStatus.OK, b"a 1\n", "text/x").to_bytes() == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 4\r\nConnection: close\r\n\r\na 1\n"
    )


def test_a_refused_method_is_told_which_one_is_not() -> None:
    answer = refuse(b"PUT /metrics HTTP/1.1\r\n\r\n")
    assert answer is not None
    assert b"\r\nAllow: GET\r\n" in answer.to_bytes()
