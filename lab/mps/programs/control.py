#!/usr/bin/python3 -IS
"""The simulated nvidia-cuda-mps-control: the daemon with -d or -f, without either the client that reads commands.

Commands, answers and files are those of NVIDIA's documentation (Legacy MPS v2). What is not real: the protocol of the
socket, which is not documented, and servers that do nothing. A client says that it is there: the simulated CUDA
library, without a word about itself, or client.py. With SIGSTOP it hangs.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

PIPE = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
LOG = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
PID_FILE = PIPE / "nvidia-cuda-mps-control.pid"
SOCKET = PIPE / "control"
END = b"\0"  # of an answer
GIB = 1024
Waiting = tuple[socket.socket, str]


def is_alive(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def parse_mib(text: str) -> int:
    """Return the MiB of `2G` or `900M`."""
    return int(text[:-1]) * {"G": GIB, "M": 1}[text[-1]]


def show_mib(mib: int) -> str:
    """Show it as driver 595 does: from a GiB on in whole GiB, rounded down. Nothing is no limit."""
    if not mib:
        return ""
    return f"{mib // GIB}G" if mib >= GIB else f"{mib}M"


class Server:
    """The server of one user, with the limits of the moment at which it was started."""

    def __init__(self, uid: int, threads: float, memory: dict[str, int]) -> None:
        self.uid, self.threads, self.memory = uid, threads, dict(memory)
        self.pids: list[int] = []
        program = Path(__file__).resolve().with_name("nvidia-cuda-mps-server")
        user = uid if os.geteuid() == 0 else None
        self._process = subprocess.Popen([str(program)], stdin=subprocess.DEVNULL, user=user)
        self.pid = self._process.pid

    @property
    def clients(self) -> list[int]:
        """Those that have not ended."""
        self.pids = [pid for pid in self.pids if is_alive(pid)]
        return self.pids

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()


class Control:
    """What the daemon knows, and a method for each command."""

    def __init__(self) -> None:
        self.servers: dict[int, Server] = {}
        self.threads = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"))
        # By command alone: driver 580 does not look at CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in its own environment.
        self.memory: dict[str, int] = {}
        self.is_ending = False

    def log(self, line: str) -> None:
        """Write a line of control.log."""
        with (LOG / "control.log").open("a") as file:
            file.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')} Control {os.getpid():5}] {line}\n")

    def do(self, line: str, peer: tuple[int, int]) -> str | None:
        """Return the answer to a command, None for one that has to wait. `peer` is who said it: process and user."""
        self.log(f"Cmd:{line.strip()}")
        word, *words = line.split() or [""]
        if word == "client" and not words:
            words = [str(number) for number in peer]
        method: Callable[..., str | None] | None = getattr(self, f"do_{word}", None)
        if method is None:
            return f'Unknown command "{line.strip()}"'
        try:
            return method(*words)
        except (TypeError, ValueError, IndexError):
            return f"{word}: invalid arguments"
        except KeyError as error:
            return f"Failed to find server {error}"

    def do_quit(self, *_: str) -> str:
        self.is_ending = True
        return ""

    def do_get_server_list(self) -> str:
        return "\n".join(map(str, self.servers))

    def do_get_server_status(self, pid: str) -> str:
        return "ACTIVE" if is_alive(self.servers[int(pid)].pid) else "FAULT"

    def do_start_server(self, option: str, uid: str) -> str:
        if option != "-uid":
            raise ValueError(option)
        server = Server(int(uid), self.threads, self.memory)
        self.servers[server.pid] = server
        return ""

    def do_get_client_list(self, pid: str) -> str:
        return "\n".join(map(str, self.servers[int(pid)].clients))

    def do_get_device_client_list(self, *_: str) -> str:
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
        return "\n".join(f"{gpu} {pid}" for server in self.servers.values() for pid in server.clients)

    def do_set_default_active_thread_percentage(self, percentage: str) -> str:
        self.threads = float(percentage)
        return str(self.threads)

    def do_get_default_active_thread_percentage(self) -> str:
        return str(self.threads)

    def do_set_active_thread_percentage(self, pid: str, percentage: str) -> str:
        self.servers[int(pid)].threads = float(percentage)
        return str(float(percentage))

    def do_get_active_thread_percentage(self, pid: str) -> str:
        return str(self.servers[int(pid)].threads)

    def do_set_default_device_pinned_mem_limit(self, device: str, limit: str) -> str:
        self.memory[device] = parse_mib(limit)
        return ""

    def do_get_default_device_pinned_mem_limit(self, device: str = "0") -> str:
        return show_mib(self.memory.get(device, 0))

    def do_set_device_pinned_mem_limit(self, pid: str, device: str, limit: str) -> str:
        self.servers[int(pid)].memory[device] = parse_mib(limit)
        return ""

    def do_get_device_pinned_mem_limit(self, pid: str, device: str) -> str:
        return show_mib(self.servers[int(pid)].memory.get(device, 0))

    def do_client(self, pid: str, uid: str) -> str | None:
        """Give a process of CUDA the server of its user, once no other user has clients."""
        for server in [each for each in self.servers.values() if each.uid != int(uid)]:
            if server.clients:
                return None
            server.end()
            del self.servers[server.pid]
        if not self.servers:
            self.do_start_server("-uid", uid)
        server = next(iter(self.servers.values()))
        server.pids.append(int(pid))
        limits = "".join(f" {device}={limit}M" for device, limit in server.memory.items())
        return f"server {server.pid} threads {server.threads:g}{limits}"

    def end(self) -> None:
        """End the servers, and leave no file that says that it runs."""
        for server in self.servers.values():
            server.end()
        for file in (SOCKET, PID_FILE):
            with suppress(FileNotFoundError):
                file.unlink()
        self.log("Exit")


def listen() -> socket.socket:
    """Return the socket; one of a daemon that was killed is replaced."""
    with suppress(FileNotFoundError):
        SOCKET.unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(SOCKET))
    listener.listen(64)
    return listener


def serve(listener: socket.socket, control: Control) -> None:
    """Answer until told to quit."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    waiting: list[Waiting] = []
    while not control.is_ending:
        for key, _ in selector.select(0.05 if waiting else None):
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            connection: socket.socket = key.fileobj  # type: ignore[assignment] # nothing else is registered
            line = connection.recv(4096).decode()
            if line:
                waiting.append((connection, line))
            else:
                selector.unregister(connection)
                connection.close()
        waiting = [each for each in waiting if not answer(control, *each)]


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return process and user at the other end, as numbered here: one in a container has other numbers there."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def answer(control: Control, connection: socket.socket, line: str) -> bool:
    """Answer a command; False for one that has to wait."""
    said = control.do(line, peer_of(connection))
    if said is not None:
        with suppress(OSError):  # it has ended
            connection.sendall(f"{said}\n".encode() + END)
    return said is not None


def open_recorder() -> int:
    """Make the pipe for the logs of servers, and open it. As NVIDIA's does, take what has its name for it."""
    with suppress(FileExistsError):
        os.mkfifo(PIPE / "log", 0o777)
    recorder = os.open(PIPE / "log", os.O_RDWR | os.O_CLOEXEC)
    if not stat.S_ISFIFO(os.fstat(recorder).st_mode):
        os.write(recorder, f"Using log directory: {LOG}\n".encode())
    return recorder


def run(ready: Callable[[], None]) -> int:
    """Be the daemon."""
    lock = os.open(PIPE / "control_lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("An instance of this daemon is already running", flush=True)
        return 1
    control = Control()
    recorder = open_recorder()
    listener = listen()
    os.write(os.open(PID_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), f"{os.getpid()}\n".encode())
    control.log("Start")

    def on_signal(*_: object) -> NoReturn:
        control.end()
        os._exit(0)

    signal.signal(signal.SIGTERM, on_signal)
    ready()
    serve(listener, control)
    os.close(recorder)
    control.end()
    return 0


def run_in_background() -> int:
    """Be the daemon in a session of its own; returns when it answers, or has failed."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        return 0 if os.read(reader, 1) else 1
    os.setsid()
    if os.fork():
        os._exit(0)

    def ready() -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        os.write(writer, b"+")
        os.close(writer)

    os._exit(run(ready))


def converse() -> int:
    """Say what is on the input, line by line, and print the answers."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(SOCKET))
    except OSError:
        print("Cannot find MPS control daemon process", flush=True)
        return 1
    for line in sys.stdin:
        connection.sendall(line.encode())
        said = b""
        while not said.endswith(END):
            part = connection.recv(65536)
            if not part:
                return 0
            said += part
        text = said[:-1].decode().strip()
        if text:
            print(text, flush=True)
    return 0


def main() -> int:
    """Run the program."""
    os.umask(0)
    PIPE.mkdir(parents=True, exist_ok=True)
    LOG.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sys.argv[1:] == ["-d"]:
        return run_in_background()
    return run(lambda: None) if sys.argv[1:] == ["-f"] else converse()


if __name__ == "__main__":
    sys.exit(main())
