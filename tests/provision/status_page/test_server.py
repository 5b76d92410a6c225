"""The page is given to whom it is meant for, with headers that keep it to itself."""

from __future__ import annotations

import socket

import pytest

from provision.report.status_page.access import Door, is_loopback, is_our_host
from provision.report.status_page.server import HEADERS
from provision.rollout.model import Phase
from tests.provision.status_page.fleets import changed, in_drain, record
from tests.provision.status_page.served import SMALL, TOKEN, ask, events, open_events, serving


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
        ("[::1].evil.example", False),
        ("[::1]@evil.example:80", False),
        ("localhost@evil.example", False),
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


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": "https://evil.example"}, id="its origin"),
        pytest.param({"Origin": "null"}, id="a sandbox, of a browser that says no more"),
        pytest.param(
            {"Origin": "null", "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, id="a form in a sandbox"
        ),
        pytest.param(
            {"Origin": "null", "Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "navigate"}, id="of another port"
        ),
    ],
)
@pytest.mark.parametrize(("path", "body"), [("/login", f"token={TOKEN}"), ("/logout", "")])
def test_a_form_of_another_site_is_refused(path: str, body: str, headers: dict[str, str]) -> None:
    with serving(token=TOKEN) as (server, _):
        cookie = (ask(server, "/login", "POST", f"token={TOKEN}")[0].headers["Set-Cookie"] or "").partition(";")[0]
        answer, _body = ask(server, path, "POST", body, Cookie=cookie, **headers)
        assert (answer.status, answer.headers["Set-Cookie"]) == (403, None)
        assert ask(server, "/main.js", Cookie=cookie)[0].status == 200


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": "http://127.0.0.1:1", "Host": "127.0.0.1:1"}, id="its origin"),
        pytest.param(
            {"Origin": "https://status.example.org", "Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "navigate"},
            id="through a proxy that names another host",
        ),
    ],
)
def test_our_own_form_logs_in_and_out(headers: dict[str, str]) -> None:
    with serving(token=TOKEN) as (server, _):
        answer, _body = ask(server, "/login", "POST", f"token={TOKEN}", **headers)
        cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]
        assert ask(server, "/main.js", Cookie=cookie)[0].status == 200
        ask(server, "/logout", "POST", Cookie=cookie, **headers)
        assert ask(server, "/main.js", Cookie=cookie)[0].status == 401


@pytest.mark.parametrize("length", ["x", "-1", "99999999", ""])
def test_a_form_of_any_length_is_not_read(length: str) -> None:
    with serving(token=TOKEN) as (server, _), socket.create_connection(("127.0.0.1", server.server_port), 30) as client:
        client.sendall(f"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 400"


def test_old_browsers_give_their_token_again_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.report.status_page.access.MAX_SESSIONS", 2)
    door = Door(TOKEN)
    sessions = [door.log_in(TOKEN) for _ in range(3)]

    assert [door.admits({"Cookie": f"grapnel-status={session}"}) for session in sessions] == [False, True, True]
    assert not door.admits({"Cookie": "grapnel-status="})
    assert not door.admits({"Cookie": "\x00="})


@pytest.mark.parametrize(
    "others",
    ['layout={"x": 1, "y": [2]}', "a b=1", 'open="without an end', "\xfc=1", "flag", "=", "grapnel-status=of-before"],
)
def test_cookies_of_other_programs_on_the_host_keep_nobody_out(others: str) -> None:
    """Cookies are of a host, whatever the port: those of a notebook or a dashboard beside the page come along."""
    door = Door("right")
    session = door.log_in("right")
    for header in (f"{others}; grapnel-status={session}", f"grapnel-status={session}; {others}"):
        assert door.admits({"Cookie": header})
    assert not door.admits({"Cookie": others})
    door.log_out({"Cookie": f"{others}; grapnel-status={session}"})
    assert not door.admits({"Cookie": f"grapnel-status={session}"})


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


def test_metrics_are_there_for_who_may_look() -> None:
    with serving(token=TOKEN) as (server, _):
        assert ask(server, "/metrics")[0].status == 401
        answer, page = ask(server, "/metrics", Authorization=f"Bearer {TOKEN}")

    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b'grapnel_rollout_nodes{state="failed-in-verify"} 1' in page
