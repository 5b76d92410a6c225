"""The simulated control program answers as NVIDIA documents it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import nvml
from lab.mps import Installed, install
from lab.nvml import models
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
UUID = "GPU-00000000-0000-0000-0000-000000000000"
WITHIN_S = 60
MIB = 1 << 20
OUT_OF_MEMORY = 2
# Allocates twice through CUDA, prints its number and the results, and stays until its input ends.
CUDA = f"""
import ctypes, os, sys
cuda, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
results = [cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size * {MIB})) for size in (60, 60, 40)]
print(*results, flush=True)
sys.stdin.read()
"""


class Machine:
    """The programs, with one folder of pipes."""

    def __init__(self, folder: Path) -> None:
        self.pipe = folder / "pipe"
        self.programs: Installed = install(folder)
        self._clients: list[subprocess.Popen[str]] = []
        self._environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
            "CUDA_VISIBLE_DEVICES": UUID,
        }

    def start(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return self._run("-d", environment=environment)

    def say(self, *commands: str) -> str:
        return self._run(said="".join(f"{command}\n" for command in commands)).stdout.strip()

    def _run(
        self, *options: str, said: str = "", environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs.control), *options]
        every = {**self._environment, **(environment or {})}
        return subprocess.run(
            command, input=said, env=every, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )

    @property
    def pid(self) -> int:
        return int((self.pipe / "nvidia-cuda-mps-control.pid").read_text())

    def connect(self, user: int) -> subprocess.Popen[str]:
        return self.start_client([str(self.programs.client), str(user)])

    def start_client(self, command: list[str], **environment: str) -> subprocess.Popen[str]:
        pipe, every = subprocess.PIPE, {**self._environment, **environment}
        self._clients.append(subprocess.Popen(command, env=every, stdin=pipe, stdout=pipe, text=True))
        return self._clients[-1]

    def end(self) -> None:
        for client in self._clients:
            client.kill()
            client.communicate()
        if (self.pipe / "nvidia-cuda-mps-control.pid").exists():
            process = Path(f"/proc/{self.pid}/exe")
            self.say("quit")
            wait_until(lambda: not process.exists())  # the answer comes before it has removed its files


@pytest.fixture
def machine() -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="mps", dir="/tmp"))
    folder.chmod(0o711)  # servers run as the users of their clients
    made = Machine(folder)
    yield made
    made.end()
    shutil.rmtree(folder)


def said(client: subprocess.Popen[str]) -> str:
    assert client.stdout is not None
    return client.stdout.readline().strip()


def test_a_second_one_on_the_same_pipes_is_refused(machine: Machine) -> None:
    assert machine.start().returncode == 0
    again = machine.start()
    assert (again.returncode, again.stdout) == (1, "An instance of this daemon is already running\n")


def test_without_a_daemon_the_client_says_so_and_fails(machine: Machine) -> None:
    assert machine.say("get_server_list") == "Cannot find MPS control daemon process"


def test_limits_are_as_set_and_shown_in_whole_gib(machine: Machine) -> None:
    machine.start()
    assert machine.say("get_default_active_thread_percentage") == "100.0"
    machine.say("set_default_active_thread_percentage 25", f"set_default_device_pinned_mem_limit {UUID} 4500M")
    assert machine.say("get_default_active_thread_percentage") == "25.0"
    assert machine.say(f"get_default_device_pinned_mem_limit {UUID}") == "4G"
    assert machine.say("get_default_device_pinned_mem_limit 0") == ""
    assert said(machine.connect(0)).endswith(f" threads 25 {UUID}=4500M")


def test_of_its_environment_it_takes_threads_and_no_memory(machine: Machine) -> None:
    """As that of driver 580.159.04, whose clients had all of an H100's memory until a command set the limit."""
    machine.start(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=f"{UUID}=900M")
    assert said(machine.connect(0)).endswith(" threads 10")


def test_defaults_are_for_the_next_server_and_a_server_s_own_for_the_next_client(machine: Machine) -> None:
    machine.start()
    first = said(machine.connect(0))
    server = machine.say("get_server_list")
    machine.say("set_default_active_thread_percentage 25")
    assert said(machine.connect(0)) == first
    machine.say(f"set_active_thread_percentage {server} 50")
    assert said(machine.connect(0)) == f"server {server} threads 50"


def test_a_user_s_client_waits_for_the_clients_of_another_user(machine: Machine) -> None:
    machine.start()
    first = machine.connect(1000)
    server = said(first).split()[1]
    assert machine.say(f"get_client_list {server}") == str(first.pid)
    second = machine.connect(1001)
    time.sleep(0.2)
    assert machine.say("get_server_list") == server
    first.kill()
    first.wait()
    assert said(second).split()[1] != server


def test_a_program_of_cuda_is_a_client_and_keeps_to_its_ceiling(machine: Machine, tmp_path: Path) -> None:
    library = nvml.install(tmp_path, "535.261.03", models.machine("a100-40gb", 1).with_gpu(0, uuid=UUID))
    nvml.install_cuda(tmp_path, "535.261.03")
    machine.start()
    machine.say(f"set_default_device_pinned_mem_limit {UUID} 100M")
    clients = [
        machine.start_client([sys.executable, "-c", CUDA], LD_LIBRARY_PATH=str(library.parent)) for _ in range(2)
    ]
    assert [said(client) for client in clients] == [f"0 {OUT_OF_MEMORY} 0"] * 2
    listed = machine.say(f"get_client_list {machine.say('get_server_list')}")
    assert sorted(listed.split()) == sorted(str(client.pid) for client in clients)


def test_its_end_ends_servers_and_takes_the_pid_file(machine: Machine) -> None:
    machine.start()
    said(machine.connect(0))
    server = int(machine.say("get_server_list"))
    machine.say("quit")
    pid_file = machine.pipe / "nvidia-cuda-mps-control.pid"
    wait_until(lambda: not pid_file.exists())
    assert not Path(f"/proc/{server}/exe").exists()


def test_the_pipes_of_one_that_was_killed_can_be_used_again(machine: Machine) -> None:
    machine.start()
    os.kill(machine.pid, signal.SIGKILL)
    wait_until(lambda: machine.start().returncode == 0)
    assert machine.say("get_default_active_thread_percentage") == "100.0"
