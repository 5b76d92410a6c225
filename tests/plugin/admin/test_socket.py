"""The admin socket: who may ask, what is too much, and what a killed daemon leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plugin.admin.client import ask
from plugin.admin.server import AdminServer
from plugin.base.errors import AdminError
from plugin.base.log import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPOSITORY = Path(__file__).parents[3]


async def echo(request: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(request.get("sleep_s", 0))
    return {"asked": request}


async def large(_request: dict[str, Any]) -> dict[str, Any]:
    return {"gpus": ["x" * 100] * 5000}


@contextmanager
def served(path: Path, answer: Callable[[dict[str, Any]], Any] = echo) -> Iterator[None]:
    """A server in a loop of its own thread."""
    loop = asyncio.new_event_loop()
    server = AdminServer(path, answer, Logger())
    loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def raw(path: Path, sent: bytes) -> bytes:
    """Say something that `ask` never would; returns all that comes back."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
    return received


def test_a_question_is_answered_and_the_socket_is_roots_and_goes(tmp_path: Path) -> None:
    path = tmp_path / "run/node.sock"
    with served(path):
        assert ask(path, {"verb": "status"}, 5) == {"asked": {"verb": "status"}}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [entry.name for entry in path.parent.iterdir()] == ["node.sock"]
    assert not path.exists()


def test_nobody_there_is_no_error(tmp_path: Path) -> None:
    assert ask(tmp_path / "absent/node.sock", {}, 1) is None
    path = tmp_path / "node.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert ask(path, {}, 1) is None


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    for name in ("node.sock", ".node.sock.new"):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(tmp_path / name))
    with served(path):
        assert ask(path, {}, 5) == {"asked": {}}


def test_a_later_daemon_keeps_its_socket_when_the_earlier_one_ends(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    earlier = served(path)
    earlier.__enter__()
    with served(path):
        earlier.__exit__(None, None, None)
        assert ask(path, {}, 5) == {"asked": {}}


@pytest.mark.slow
def test_many_at_once_are_served_and_too_many_are_told(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    answers: list[str] = []

    def client() -> None:
        try:
            answers.append("answered" if ask(path, {"sleep_s": 1}, 20) else "nobody")
        except AdminError as error:
            answers.append(error.message.rpartition(": ")[2])

    with served(path):
        clients = [threading.Thread(target=client) for _ in range(24)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        assert ask(path, {}, 5) == {"asked": {}}
    assert {word: answers.count(word) for word in set(answers)} == {"answered": 16, "too many requests at once": 8}


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\n", id="an empty line"),
        pytest.param(b"[]\n", id="a list"),
        pytest.param(b"{\n", id="half an object"),
        pytest.param(b"\xff\n", id="not text"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"x" * 100_000 + b"\n", id="a line without end"),
        pytest.param(b"[" * 3000 + b"\n", id="nested without end"),
    ],
)
def test_what_is_no_request_is_refused(tmp_path: Path, sent: bytes) -> None:
    path = tmp_path / "node.sock"
    with served(path):
        assert json.loads(raw(path, sent)) == {"error": "a request is one json object on one line"}
        assert ask(path, {}, 5) == {"asked": {}}


def test_an_answer_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    with served(path, large):
        answer = ask(path, {}, 10)
    assert answer is not None
    assert len(answer["gpus"]) == 5000


def test_a_bug_is_an_error_and_not_an_absent_daemon(tmp_path: Path) -> None:
    async def broken(_request: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError

    path = tmp_path / "node.sock"
    with served(path, broken), pytest.raises(AdminError, match="bug in the daemon: ZeroDivisionError"):
        ask(path, {}, 10)


def test_a_client_in_the_middle_is_hung_up_when_the_daemon_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "node.sock"
    arrived = threading.Event()
    answers: list[object] = []

    async def wait(_request: dict[str, Any]) -> dict[str, Any]:
        arrived.set()
        await asyncio.sleep(3600)
        return {}

    with served(path, wait):
        client = threading.Thread(target=lambda: answers.append(ask(path, {}, 20)))
        client.start()
        assert arrived.wait(10)
    client.join()
    assert answers == [None]
    assert caplog.records == []


def test_a_client_that_goes_away_is_nobodys_loss(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    with served(path, large):
        for _ in range(10):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                connection.sendall(b"{}\n")
        assert ask(path, {}, 10) is not None


def test_a_daemon_that_hangs_is_an_error_in_time(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with pytest.raises(AdminError, match=r"does not answer within 0\.2 s"):
            ask(path, {}, 0.2)


def test_a_daemon_that_is_killed_in_the_middle_is_nobody(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"

    def die() -> None:
        connection, _ = server.accept()
        connection.close()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        dying = threading.Thread(target=die)
        dying.start()
        assert ask(path, {}, 5) is None
        dying.join()


@pytest.mark.parametrize("answer", [b"hello\n", b"[]\n"], ids=["no json", "no object"])
def test_another_program_behind_the_socket_is_noticed(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "node.sock"

    def reply() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        replying = threading.Thread(target=reply)
        replying.start()
        with pytest.raises(AdminError, match="the answer is not"):
            ask(path, {}, 5)
        replying.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_only_root_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    script = (
        "import os, socket, sys\n"
        "connection = socket.socket(socket.AF_UNIX); connection.settimeout(10)\n"
        "os.chdir(sys.argv[1]); os.setuid(65534)\n"
        "connection.connect('node.sock')\n"
        "connection.sendall(b'{}\\n'); print(connection.recv(1000).decode())"
    )
    with served(path):
        tmp_path.chmod(0o755)
        command = [sys.executable, "-c", script, str(tmp_path)]
        denied = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "PermissionError" in denied.stderr
        path.chmod(0o666)
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert json.loads(refused.stdout) == {"error": "only root may ask"}


def test_who_connects_and_says_nothing_leaves_descriptors_for_others_and_is_hung_up(tmp_path: Path) -> None:
    """Nothing limited the connections: a few hundred silent ones used up what the kubelet's needed."""
    path = tmp_path / "node.sock"
    with served(path), ExitStack() as held:
        before = len(list(Path("/proc/self/fd").iterdir()))
        silent = [held.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(120)]
        for connection in silent:
            connection.connect(str(path))  # waits where the queue is full
            connection.settimeout(10)
        refused = [connection for connection in silent[64:] if connection.recv(1) == b""]
        assert len(refused) == 120 - 64
        assert len(list(Path("/proc/self/fd").iterdir())) - before - len(silent) <= 64
        silent[0].close()
        silent[1].sendall(b'{"verb": "status"}\n')
        assert json.loads(silent[1].recv(4096)) == {"asked": {"verb": "status"}}


@pytest.mark.slow
def test_a_socket_that_cannot_be_removed_does_not_keep_the_daemon_from_ending(tmp_path: Path) -> None:
    """A file system that became read-only ended the daemon before its devices were withdrawn."""
    script = """
import asyncio, subprocess, sys
from pathlib import Path
from plugin.admin.server import AdminServer
from plugin.base.log import Logger
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
async def main():
    server = AdminServer(folder / "node.sock", None, Logger())
    await server.start()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    await server.close()
    print("ended", (folder / "node.sock").exists())
asyncio.run(main())
"""
    command = ["unshare", "--mount", "--map-root-user", sys.executable, "-c", script, str(tmp_path)]
    if subprocess.run([*command[:3], "true"], check=False).returncode != 0:
        pytest.skip("this machine does not let us have a mount namespace")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "ended True\n", done.stderr
