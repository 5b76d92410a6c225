"""The page is given to whom it is meant for, with headers that keep it to itself; nobody keeps anybody else waiting."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from provision.rollout.model import Phase
from provision.status_page.access import Door, is_loopback, is_our_host
from provision.status_page.feed import Feed
from provision.status_page.server import HEADERS, PageServer, Settings
from tests.provision.status_page.fleets import FakeReader, changed, fleet, in_drain, record

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = fleet(40, 4, done=0.5, flying=4, failed=1)
TOKEN = "a-token-that-nobody-guesses"  # noqa: S105 - of this test


@contextlib.contextmanager
def serving(**settings: object) -> Iterator[tuple[PageServer, Feed]]:
    feed = Feed(FakeReader(SMALL), follow_s=0.05)
    feed.take(SMALL)
    fields = {"address": "127.0.0.1", "port": 0, **settings}
    with PageServer(feed, Settings(**fields)) as server:  # type: ignore[arg-type]  # fields by name
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server, feed
        finally:
            feed.close()
            server.shutdown()
            thread.join()


def ask(
    server: PageServer, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()


def events(connection: socket.socket) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the kind and the document of each event."""
    kind = ""
    with connection.makefile("rb") as stream:
        for line in stream:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                yield kind, json.loads(value)


def open_events(server: PageServer, extra: str = "") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=30)
    connection.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n{extra}\r\n".encode())
    return connection


@pytest.mark.parametrize("path", ["/", "/main.js", "/style.css", "/icon.svg", "/node/gpu-001-01", "/nothing", "/login"])
def test_every_answer_keeps_to_itself(path: str) -> None:
    with serving() as (server, _):
        answer, _body = ask(server, path)

    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_the_page_needs_nothing_from_elsewhere() -> None:
    with serving() as (server, _):
        for path, (_kind, body) in server.static.items():
            assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b""), path
            assert b"https://" not in body, path
            assert ask(server, path)[1] == body


@pytest.mark.parametrize(
    "path",
    [
        "/../server.py",
        "/..%2fserver.py",
        "//etc/passwd",
        "/static/main.js",
        "/node/../../x",
        "/node/",
        "/%00",
        "/__init__.py",
    ],
)
def test_only_files_of_the_page_are_there(path: str) -> None:
    with serving() as (server, _):
        answer, body = ask(server, path)

    assert (answer.status, body) == (404, b"")


def test_a_name_that_is_not_ours_is_refused() -> None:
    with serving(names=frozenset({"status.example.org"})) as (server, _):
        assert ask(server, "/", Host="evil.example.org")[0].status == 421
        assert ask(server, "/events", Host="evil.example.org:8470")[0].status == 421
        assert ask(server, "/", Host="status.example.org")[0].status == 200
        assert ask(server, "/", Host="localhost:1")[0].status == 200


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:8470", True),
        ("[::1]:8470", True),
        ("::1", True),
        ("10.1.2.3", True),
        ("LOCALHOST", True),
        ("a.example", True),
        ("evil.a.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_which_names_are_ours(host: str, *, ours: bool) -> None:
    assert is_our_host(host, {"a.example"}) == ours


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - an address that is refused
        ("::", False),
        ("10.0.0.1", False),
        ("host", False),
    ],
)
def test_what_loopback_is(address: str, *, loopback: bool) -> None:
    assert is_loopback(address) == loopback


def test_a_script_of_another_site_gets_nothing_and_a_link_from_it_works() -> None:
    with serving() as (server, _):
        assert ask(server, "/events", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors")[0].status == 403
        assert ask(server, "/main.js", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="no-cors")[0].status == 403
        assert ask(server, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0].status == 200


def test_without_the_token_there_is_nothing_but_the_form() -> None:
    with serving(token=TOKEN) as (server, _):
        for path in ("/events", "/main.js", "/node/gpu-001-01", "/index.html", "/events?token=" + TOKEN):
            assert ask(server, path)[0].status == 401
        answer, _body = ask(server, "/")
        assert (answer.status, answer.headers["Location"]) == (303, "/login")
        assert b"<form" in ask(server, "/login")[1]


def test_the_token_opens_by_form_and_by_header() -> None:
    with serving(token=TOKEN) as (server, _):
        answer, _body = ask(server, "/login", "POST", "token=wrong")
        assert (answer.headers["Location"], answer.headers["Set-Cookie"]) == ("/login#wrong", None)
        answer, _body = ask(server, "/login", "POST", f"token={TOKEN}")
        cookie, _, rules = (answer.headers["Set-Cookie"] or "").partition("; ")
        assert answer.headers["Location"] == "/"
        assert rules == "Path=/; HttpOnly; SameSite=Lax"
        assert TOKEN not in cookie
        assert ask(server, "/main.js", Cookie=cookie)[0].status == 200
        assert ask(server, "/main.js", Authorization=f"Bearer {TOKEN}")[0].status == 200
        assert ask(server, "/main.js", Authorization="Bearer wrong")[0].status == 401
        ask(server, "/logout", "POST", Cookie=cookie)
        assert ask(server, "/main.js", Cookie=cookie)[0].status == 401


def test_a_form_of_another_site_is_refused() -> None:
    with serving(token=TOKEN) as (server, _):
        answer, _body = ask(server, "/login", "POST", f"token={TOKEN}", Origin="https://evil.example")

    assert answer.status == 403


@pytest.mark.parametrize("length", ["x", "-1", "99999999", ""])
def test_a_form_of_any_length_is_not_read(length: str) -> None:
    with serving(token=TOKEN) as (server, _), socket.create_connection(("127.0.0.1", server.server_port), 30) as client:
        client.sendall(f"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 400"


def test_old_browsers_give_their_token_again_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.status_page.access.MAX_SESSIONS", 2)
    door = Door(TOKEN)
    sessions = [door.log_in(TOKEN) for _ in range(3)]

    assert [door.admits({"Cookie": f"grapnel-status={session}"}) for session in sessions] == [False, True, True]
    assert not door.admits({"Cookie": "grapnel-status="})
    assert not door.admits({"Cookie": "\x00="})


def test_events_bring_everything_and_then_changes() -> None:
    name = in_drain(SMALL)
    with serving() as (server, feed), open_events(server) as client:
        stream = events(client)
        kind, document = next(stream)
        assert kind == "fleet"
        assert len(document["nodes"]) == 40  # type: ignore[arg-type]  # a list
        feed.take(changed(SMALL, {name: record(Phase.VERIFY, 90, 1)}))
        kind, document = next(stream)
        assert kind == "change"
        assert [node[1:3] for node in document["nodes"]] == [[name, "verify"]]  # type: ignore[attr-defined]  # a list


def test_a_page_that_comes_back_is_told_only_what_it_missed() -> None:
    name = in_drain(SMALL)
    with serving() as (server, feed):
        before = feed.wait("", 0)
        assert before is not None
        feed.take(changed(SMALL, {name: record(Phase.VERIFY, 90, 1)}))
        with open_events(server, f"Last-Event-ID: {before.ident}\r\n") as client:
            kind, document = next(events(client))

    assert kind == "change"
    assert len(document["nodes"]) == 1  # type: ignore[arg-type]  # a list


def test_pages_that_read_nothing_keep_nobody_waiting() -> None:
    name = in_drain(SMALL)
    with contextlib.ExitStack() as stack:
        server, feed = stack.enter_context(serving())
        for _ in range(20):
            stack.enter_context(open_events(server))
        reading = stack.enter_context(open_events(server))
        stream = events(reading)
        next(stream)
        for number in range(300):
            feed.take(changed(SMALL, {name: record(Phase.VERIFY, 90, number)}))
        feed.take(changed(SMALL, {name: record(Phase.RESUME, 90, 1)}))
        assert any(document["nodes"][-1][2] == "resume" for _kind, document in stream)  # type: ignore[index]  # a list


def test_a_request_that_does_not_come_is_ended_however_it_drips() -> None:
    with serving(ask_s=0.3) as (server, _), socket.create_connection(("127.0.0.1", server.server_port), 30) as client:
        client.settimeout(0.02)
        with pytest.raises(OSError, match=r"reset|Broken pipe|closed"):  # noqa: PT012 - it drips until it is ended
            for _ in range(3000):
                client.sendall(b"G")
                with contextlib.suppress(TimeoutError):
                    if client.recv(1) == b"":
                        raise ConnectionResetError("closed")
        assert ask(server, "/")[0].status == 200


def test_events_go_on_for_longer_than_a_request_may_take() -> None:
    with serving(ask_s=0.2) as (server, feed), open_events(server) as client:
        stream = events(client)
        next(stream)
        late = threading.Event()
        late.wait(0.2 * 4)  # the server ends requests that have not come by then
        name = next(iter(SMALL.nodes))
        feed.take(changed(SMALL, {name: record(Phase.VERIFY, 90, 1)}))
        assert next(stream)[0] == "change"


def test_there_is_an_end_to_the_number_of_clients() -> None:
    with serving(max_clients=3) as (server, _), contextlib.ExitStack() as stack:
        streams = [events(stack.enter_context(open_events(server))) for _ in range(3)]
        assert [next(stream)[0] for stream in streams] == ["fleet"] * 3
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(server, "/")


@pytest.mark.parametrize(
    "request_",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"X" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"\x16\x03\x01\x00",
    ],
)
def test_nonsense_is_answered_or_ended(request_: bytes) -> None:
    with serving(ask_s=0.3) as (server, _):
        with socket.create_connection(("127.0.0.1", server.server_port), 30) as client, contextlib.suppress(OSError):
            client.sendall(request_)
            while client.recv(4096):
                pass
        assert ask(server, "/")[0].status == 200


def test_metrics_are_there_for_who_may_look() -> None:
    with serving(token=TOKEN) as (server, _):
        assert ask(server, "/metrics")[0].status == 401
        answer, page = ask(server, "/metrics", Authorization=f"Bearer {TOKEN}")

    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b'grapnel_rollout_nodes{state="failed-in-verify"} 1' in page
