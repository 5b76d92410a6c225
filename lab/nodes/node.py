"""Controls one node of a site: start, stop, power cut, commands over ssh."""

from __future__ import annotations

import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.bundle import Bundle
from lab.kmod import SIMULATED_NVML, install_driver_module
from lab.machine.command import run
from lab.machine.errors import BootError, CommandError, SiteError

if TYPE_CHECKING:
    import subprocess

    from lab.nodes.boot import Machine
    from lab.nodes.spec import NodeSpec
    from lab.nodes.ssh import SshAccess
    from lab.nvml.machine import Gpu

BOOT_TIMEOUT_S = 90.0
POWEROFF_TIMEOUT_S = 20.0
RUN_TIMEOUT_S = 120.0
POLL_S = 0.05
CONNECT_TIMEOUT_S = 0.3
SSH_PORT = 22
SSH_FAILED = 255
UP_STATES = ("running", "degraded")  # degraded: a unit failed, which a test may intend


@dataclass(frozen=True)
class Node:
    """A node in its site's folder, running or not."""

    spec: NodeSpec
    site: str
    address: str
    folder: Path
    machine: Machine
    access: SshAccess

    @property
    def name(self) -> str:
        """The node's name: host name, inventory name."""
        return self.spec.name

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The node's GPUs as the module, PCI and the simulated NVML show them."""
        return self.spec.machine(self.site).gpus

    @property
    def is_running(self) -> bool:
        """Whether any process of the node is running."""
        return bool(self.machine.group.pids())

    @property
    def root(self) -> Path:
        """The running node's file system, seen from this machine.

        An absolute symbolic link in it leads to this machine's own files: open its target instead.
        """
        leader = self.machine.leader()
        if not leader:
            raise SiteError(f"node {self.name} is not running", hint=f"python3 -m lab up {self.name}")
        return Path(f"/proc/{leader}/root")

    @property
    def kernel_release(self) -> str:
        """The kernel that the node says it runs."""
        if self.spec.builder:
            return Bundle(self.spec.suite, self.machine.bundle).kernel_release
        return self.spec.kernel_release

    @property
    def nvml_library(self) -> Path:
        """The simulated NVML of the node: ``lab.nvml.state`` reads and changes the machine in it, live."""
        place = SIMULATED_NVML.lstrip("/")
        return (self.root if self.is_running else self.folder / "upper") / place

    def install_module(self, version: str) -> None:
        """Put another version of the driver's module on the running node's disk; what is loaded stays loaded."""
        install_driver_module(self.root / "usr/lib/modules", version, self.kernel_release)

    def start(self) -> None:
        """Start the node's machine; ``wait_ready`` waits for its system."""
        if not self.is_running:
            self.machine.start()

    def wait_ready(self, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Wait until ssh answers and systemd has finished starting; ``BootError`` shows the end of the console."""
        deadline = time.monotonic() + timeout_s
        while not self._answers():
            if not self.is_running:
                raise BootError(f"node {self.name} stopped while booting", hint=self.machine.console_tail())
            if time.monotonic() > deadline:
                message = f"node {self.name}: no answer on {self.address} within {timeout_s:g} s"
                raise BootError(message, hint=self.machine.console_tail())
            time.sleep(POLL_S)
        self._wait_for_systemd(max(deadline - time.monotonic(), 1.0))

    def _wait_for_systemd(self, timeout_s: float) -> None:
        try:
            asked = self.run(["systemctl", "is-system-running", "--wait"], check=False, timeout_s=timeout_s)
        except CommandError as error:
            message = f"node {self.name}: systemd did not finish starting within {timeout_s:.0f} s"
            raise BootError(message, hint=self.machine.console_tail()) from error
        if asked.stdout.strip() not in UP_STATES:
            message = f"node {self.name} is {asked.stdout.strip() or 'not reachable over ssh'}"
            raise BootError(message, hint=f"{asked.stderr}{self.machine.console_tail()}")

    def run(
        self,
        command: list[str],
        *,
        check: bool = True,
        timeout_s: float = RUN_TIMEOUT_S,
        input_text: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``command`` (arguments, no shell) as root; ``CommandError`` if it fails, unless ``check`` is off."""
        argv = self.access.argv(self.address, command)
        return run(argv, timeout_s=timeout_s, check=check, input_text=input_text)

    def stop(self) -> None:
        """Power off cleanly; a node that does not do so in time loses its power."""
        if self.is_running:
            self.run(["systemctl", "poweroff"], check=False, timeout_s=POWEROFF_TIMEOUT_S)
            self._wait_until_off()
        self.cut()

    def _wait_until_off(self) -> None:
        deadline = time.monotonic() + POWEROFF_TIMEOUT_S
        while self.is_running and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def cut(self) -> None:
        """Cut the power: every process of the node is killed at once, nothing more is written."""
        self.machine.group.kill()
        self.access.close(self.address)

    def reboot(self, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Reboot cleanly and wait until the node is ready again."""
        before = self.machine.leader()
        self.run(["systemctl", "reboot"], check=False)
        self.access.close(self.address)
        deadline = time.monotonic() + timeout_s
        while self.machine.leader() in (0, before):
            if time.monotonic() > deadline:
                message = f"node {self.name} did not reboot within {timeout_s:g} s"
                raise BootError(message, hint=self.machine.console_tail())
            time.sleep(POLL_S)
        self.wait_ready(timeout_s)

    def delete(self) -> None:
        """Cut the power and remove the node's cgroups and folder."""
        self.cut()
        self.machine.group.remove()
        (self.folder / "node.json").unlink()  # first, so that a half-removed folder does not count as a node
        shutil.rmtree(self.folder)

    def _answers(self) -> bool:
        """Whether an ssh daemon answers on the node's address."""
        try:
            with socket.create_connection((self.address, SSH_PORT), CONNECT_TIMEOUT_S) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False
