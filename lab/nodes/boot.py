"""Starts a node's machine: the systemd-nspawn command line, its supervisor, and the node's first process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.errors import BootError, SiteError
from lab.machine.folders import write_atomic
from lab.machine.processes import kill_if

if TYPE_CHECKING:
    from lab.nodes.cgroup import ControlGroup

SUPERVISOR = Path(__file__).with_name("supervise.py")
START_TIMEOUT_S = 30.0
POLL_S = 0.02
CONSOLE_LINES = 25
# System calls that containers and the simulated module need beyond nspawn's own list.
SYSTEM_CALLS = "add_key keyctl bpf perf_event_open init_module finit_module delete_module"
# "yes" would make all of /sys writable, and networkd would then wait for a udev that the tree does not have.
ENVIRONMENT = {"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"}
INOTIFY_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_INSTANCES = 4096
OVERLAY_SEPARATORS = frozenset(":,\\")


def kill_supervisors(folder: Path) -> None:
    """Kill the supervisors of nodes below a folder, and wait for their end: one that has just started is in no group.

    From `setsid` on, each of the programs that become a supervisor has its script and the node's folder as arguments.
    """

    def is_meant(pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            return False
        is_supervisor = any(Path(os.fsdecode(word)).name == SUPERVISOR.name for word in words)
        return is_supervisor and any(word.startswith(os.fsencode(f"{folder}/")) for word in words)

    deadline = time.monotonic() + START_TIMEOUT_S
    while pids := [int(path.name) for path in Path("/proc").glob("[0-9]*") if is_meant(int(path.name))]:
        for pid in pids:
            kill_if(pid, is_meant)
        if time.monotonic() > deadline:
            raise BootError(f"supervisors {pids} of nodes in {folder} cannot be killed")
        time.sleep(POLL_S)


def raise_inotify_limit(path: Path = INOTIFY_LIMIT) -> None:
    """Let root have as many inotify instances as its nodes take: some sixteen each, and Linux gives it 128.

    What gets none does not say so where one looks: systemd ends with status 255, an engine serves without its CRI.
    """
    if int(path.read_text()) < INOTIFY_INSTANCES:
        path.write_text(str(INOTIFY_INSTANCES))


@dataclass(frozen=True)
class Machine:
    """One nspawn machine: ``name`` is unique on this machine and short, as its interface is ``vb-<name>``.

    ``lower`` are the lower folders of its overlay, top first; ``binds`` are read-only: path here, path in the node.
    """

    name: str
    hostname: str
    folder: Path
    lower: tuple[Path, ...]
    bundle: Path
    bridge: str
    group: ControlGroup
    binds: tuple[tuple[str, str], ...] = ()

    @property
    def console(self) -> Path:
        """The node's console log; starts and reboots are appended."""
        return self.folder / "console.log"

    def start(self) -> None:
        """Start the supervisor; return once its processes are in the node's cgroup."""
        for place in (*self.lower, self.bundle, *(Path(source) for source, _ in self.binds)):
            if not place.exists():
                raise SiteError(f"{place}, which {self.hostname} was created from, is gone", hint="remove the node")
        raise_inotify_limit()
        config = {
            "groups": [str(folder) for folder in self.group.create()],
            "mount": self._mount_argv(),
            "interface": f"vb-{self.name}",
            "nspawn": self._nspawn_argv(),
            "env": ENVIRONMENT,
        }
        path = self.folder / "supervisor.json"
        write_atomic(path, json.dumps(config, indent=1))
        # setsid --fork: the supervisor has no parent, so that the node outlives this command.
        supervisor = [sys.executable, "-I", str(SUPERVISOR), str(path)]
        command = ["setsid", "--fork", "unshare", "--mount", "--propagation", "slave", *supervisor]
        with self.console.open("ab") as console:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT)
        self._wait_for_processes()

    def _wait_for_processes(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.group.pids():
            if time.monotonic() > deadline:
                raise BootError(f"{self.hostname}: its supervisor did not start", hint=self.console_tail())
            time.sleep(POLL_S)

    def leader(self) -> int:
        """Return the pid, on this machine, of the node's first process; 0 if it is not running."""
        for pid in sorted(self.group.pids()):
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                namespaces = status.partition("NSpid:")[2].partition("\n")[0].split()
                if namespaces[1:] == ["1"]:  # ours and the node's
                    return pid
        return 0

    def console_tail(self) -> str:
        """Return the end of the console log, for error messages."""
        if not self.console.exists():
            return f"{self.console}: nothing yet"
        lines = self.console.read_text(errors="replace").splitlines()[-CONSOLE_LINES:]
        return "\n".join([f"end of {self.console}:", *lines])

    def _mount_argv(self) -> list[str]:
        own = {"upperdir": self.folder / "upper", "workdir": self.folder / "work"}
        for path in (*self.lower, *own.values()):
            if OVERLAY_SEPARATORS & set(str(path)):
                raise SiteError(f"{path}: overlayfs does not support a path with a colon, comma or backslash")
        layers = {"lowerdir": ":".join(map(str, self.lower)), **own}
        options = ",".join(f"{name}={path}" for name, path in layers.items())
        return ["mount", "-t", "overlay", self.name, "-o", options, str(self.folder / "root")]

    def _nspawn_argv(self) -> list[str]:
        return [
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            f"--machine={self.name}",
            f"--hostname={self.hostname}",
            f"--directory={self.folder / 'root'}",
            "--network-veth",
            f"--network-bridge={self.bridge}",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--console=pipe",
            "--capability=all",
            f"--system-call-filter={SYSTEM_CALLS}",
            # Both are empty after a reboot, like the kernel's state of modules.
            "--tmpfs=/sys/module:mode=755",
            "--tmpfs=/proc/driver:mode=755",
            "--bind=/dev/kmsg",
            f"--bind-ro={self.bundle}:/srv/bundle",
            # Mounted over /sys/bus/pci/devices by the node's lab-prepare: nspawn mounts /sys after its binds.
            f"--bind-ro={self.folder / 'pci'}:/usr/lib/gpusim/pci",
            # Overlays cannot be stacked on an overlay: the engine's layers need a plain file system.
            f"--bind={self.folder / 'containerd'}:/var/lib/containerd",
            f"--bind={self.folder / 'containers'}:/var/lib/containers",
            f"--bind={self.folder / 'kubelet'}:/var/lib/kubelet",
            *(f"--bind-ro={source}:{place}" for source, place in self.binds),
            "--boot",
        ]
