"""The daemon as a process of its own, below a folder that looks like a node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.driver.snapshot import Snapshot
from tests.plugin.fakes import VERSION, gpus, make_dev, write_driver
from tests.waiting import wait_until

if TYPE_CHECKING:
    from typing import Self

REPOSITORY = Path(__file__).parents[2]
RESOURCE = "nvidia.com/gpu"
_CONNECTED = "03"  # in /proc/net/unix


class DaemonProcess:
    """Started on demand; stopped when the `with` ends."""

    def __init__(self, node: Path, gpu_count: int = 2, **timing: float) -> None:
        self.node = node
        self.kubelet_root = node / "kubelet"
        self.driver = node / "driver.json"
        self.log_path = node / "log"
        self._timing = timing
        self.variables = {"GFD_OUTPUT_FILE": str(node / "gfd")}  # no file in the folder of the machine that tests
        self._process: subprocess.Popen[bytes] | None = None
        make_dev(node / "dev", gpu_count)
        (self.kubelet_root / "device-plugins").mkdir(parents=True)
        write_driver(self.driver, Snapshot(VERSION, gpus(gpu_count)))
        self.configure()

    def configure(self, **keys: object) -> None:
        config = {
            "kubeletRoot": str(self.kubelet_root),
            "devRoot": str(self.node / "dev"),
            "hookPath": str(self.node / "grapnel-hook"),
            "adminSocket": str(self.node / "run/node.sock"),
            "stateFolder": str(self.node / "state"),
            "refreshSeconds": 0.1,
            "retrySeconds": 0.1,
            "quietSeconds": 0.1,
        }
        (self.node / "node.json").write_text(json.dumps({**config, **keys}))

    def start(self, notify_socket: str = "") -> Self:
        script = REPOSITORY / "tests/plugin/run_with_file.py"
        command = [
            sys.executable,
            str(script),
            str(self.node / "node.json"),
            str(self.driver),
            json.dumps(self._timing),
        ]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "NOTIFY_SOCKET": notify_socket,
            **self.variables,
        }
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stderr=log)
        return self

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """End it at once, as the kernel does when memory is short."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> int:
        """Stop as systemd does; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(20)

    def log(self) -> str:
        return self.log_path.read_text()

    def lines(self, *texts: str) -> list[str]:
        """Return the lines of the log with any of these texts, each as a whole."""
        return [line for line in self.log().splitlines() if any(text in line for text in texts)]

    def wait_for_log(self, text: str, times: int = 1) -> None:
        wait_until(
            lambda: self.log().count(text) >= times,
            lambda: f"{text!r} x{times} not in the log:\n{self.log()}",
        )

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))  # names only, of a process that changes

    def connections(self, socket: str) -> int:
        """Return how many peers are connected to a socket of the daemon's, by the name of its file."""
        own = set()
        for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                own.add(os.readlink(descriptor))  # no path: socket:[NUMBER]
        rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        connected = [row[6:] for row in rows[1:] if row[5] == _CONNECTED]
        return sum(f"socket:[{number}]" in own and "".join(path).endswith(f"/{socket}") for number, *path in connected)

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))  # names only, of a process that changes
