"""A node with the lab's control program and systemd, and a driver that remembers compute modes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from lab.mps import Installed, install
from plugin.base.errors import MpsError
from plugin.base.log import Logger
from plugin.sharing.mps.control import Control
from plugin.sharing.mps.keeper import Tools
from plugin.sharing.mps.pace import Pace
from plugin.sharing.mps.plan import MpsDaemon, MpsPlan, SharedGpu, plan_daemons
from plugin.sharing.mps.supervisor import MpsSupervisor
from plugin.sharing.mps.units import Units
from tests.plugin.fakes import gpu

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

PATIENCE_S = 60.0
QUICK = Pace(
    answer_s=20,
    check_s=0.2,
    recheck_s=0.05,
    missed_s=0.05,
    misses=2,
    start_s=20,
    quit_s=20,
    first_retry_s=0.05,
    longest_retry_s=0.2,
)


@dataclass
class Modes:
    """The driver's compute modes, with every one that was set; with `silent` it does not answer."""

    modes: dict[str, int] = field(default_factory=dict)
    written: list[tuple[str, int]] = field(default_factory=list)
    silent: bool = False

    async def read(self, uuid: str) -> int:
        if self.silent:
            raise MpsError("the driver does not answer")
        return self.modes.get(uuid, 0)

    async def write(self, uuid: str, mode: int) -> None:
        await self.read(uuid)
        self.modes[uuid] = mode
        self.written.append((uuid, mode))


class Client(NamedTuple):
    """A process in a container that uses the GPU."""

    process: subprocess.Popen[str]
    said: str

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Node:
    """What outlives the daemon: programs, units, modes, clients."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "run"
        self.programs: Installed = install(folder)
        self.modes = Modes()
        self.clients: list[Client] = []

    def plan(self, count: int = 1, replicas: int = 4) -> MpsPlan:
        shared = [SharedGpu(gpu(index).uuid, index, 80 * 2**30, replicas, "8.0") for index in range(count)]
        return plan_daemons(shared, self.root)

    def tools(self, pace: Pace = QUICK) -> Tools:
        control = self.programs.control
        units = Units(control, f"{self.programs.tools}/")
        return Tools(Control(control, pace.answer_s), units, self.modes, Logger(), pace)

    def connect(self, supervisor: MpsSupervisor, uuid: str, user: int = 0) -> Client:
        """Start a process with the environment that a container gets."""
        variables = dict(supervisor.answer([uuid]).variables)
        process = subprocess.Popen(
            [str(self.programs.client), str(user)],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stream: IO[str] | None = process.stdout
        assert stream is not None
        self.clients.append(Client(process, stream.readline().strip()))
        return self.clients[-1]

    def pid(self, daemon: MpsDaemon) -> int:
        return int((daemon.pipe / "nvidia-cuda-mps-control.pid").read_text())

    def says(self, daemon: MpsDaemon, command: str) -> str:
        """Ask the control daemon as a person does."""
        done = subprocess.run(
            [str(self.programs.control)],
            env={"CUDA_MPS_PIPE_DIRECTORY": str(daemon.pipe)},
            input=f"{command}\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout.strip()

    def runs(self, daemon: MpsDaemon) -> bool:
        return "Cannot find" not in self.says(daemon, "get_server_list")

    def calls(self, program: str) -> list[list[str]]:
        """Return how one of systemd's programs was called."""
        lines = (self.programs.tools / "units/calls").read_text().splitlines()
        return [words for name, *words in map(json.loads, lines) if name == program]

    def end(self) -> None:
        for client in self.clients:
            client.end()
        for note in (self.programs.tools / "units").glob("*.json"):
            session = json.loads(note.read_text())[1]
            for stat in Path("/proc").glob("[0-9]*/stat"):
                with suppress(OSError):
                    if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                        os.kill(int(stat.parent.name), signal.SIGKILL)


@contextmanager
def made_node() -> Iterator[Node]:
    """Make a node in a folder with a short name: sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="mps", dir="/tmp"))
    folder.chmod(0o711)  # servers run as the users of their clients
    node = Node(folder)
    try:
        yield node
    finally:
        node.end()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Daemon:
    """One life of grapnel-node, as far as it is about MPS."""

    supervisor: MpsSupervisor
    crashes: list[BaseException]
    changes: list[str]

    async def share(self, plan: MpsPlan, *uuids: str) -> None:
        """Want a plan, and wait for GPUs of it."""
        self.supervisor.want(plan)
        await self.up(*uuids)

    async def up(self, *uuids: str) -> None:
        await until(lambda: not any(map(self.supervisor.problem, uuids)), lambda: str(self.supervisor.problems))

    async def down(self, uuid: str, words: str) -> None:
        await until(lambda: words in self.supervisor.problem(uuid), lambda: self.supervisor.problem(uuid))


def begin(node: Node, **pace: float) -> Daemon:
    """Start a daemon; in the event loop."""
    crashes: list[BaseException] = []
    changes: list[str] = []
    tools = node.tools(replace(QUICK, **pace))  # type: ignore[arg-type] # misses is whole
    supervisor = MpsSupervisor(tools, lambda: changes.append("changed"), crashes.append)
    return Daemon(supervisor, crashes, changes)


async def until(is_so: Callable[[], bool], what: Callable[[], str] = lambda: "") -> None:
    """Wait for something; fails with what is so instead."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not is_so():
        assert asyncio.get_running_loop().time() < deadline, what()
        await asyncio.sleep(0.02)


def live(node: Node, act: Callable[[Daemon], Awaitable[None]], **pace: float) -> None:
    """Let a daemon live for as long as something is done with it; it ends without saying so."""

    async def run() -> None:
        daemon = begin(node, **pace)
        await act(daemon)
        assert daemon.crashes == []

    asyncio.run(run())
