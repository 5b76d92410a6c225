"""A live page that is served on loopback, and clients of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from typing import TYPE_CHECKING

from provision.report.status_page.feed import Feed
from provision.report.status_page.server import PageServer, Settings
from tests.provision.status_page.fleets import FakeReader, fleet

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


def open_events(server: PageServer, extra: str = "", source: str = "127.0.0.1") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=30, source_address=(source, 0))
    connection.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n{extra}\r\n".encode())
    return connection


def answering() -> set[threading.Thread]:
    """Return the threads that answer somebody; those of servers of other tests may be among them for a while."""
    return {each for each in threading.enumerate() if "process_request_thread" in each.name}


def is_ended(client: socket.socket, drip: bytes = b"") -> bool:
    """Tell whether the server ends a connection, whatever it says before that, while ``drip`` is sent again and again.

    It has half a minute.
    """
    client.settimeout(0.05)
    for _ in range(600):
        try:
            if drip:
                client.sendall(drip)
            while client.recv(65536):
                pass
        except TimeoutError:
            continue
        except ConnectionError:
            pass
        return True
    return False
