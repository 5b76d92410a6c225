"""A real Podman with a storage of its own, for tests of what engines hand to the hook."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

from tests.runtime_hook.containers import HOOK
from tests.waiting import wait_until

# Podman's own limits are higher than what root may have here (CAP_SYS_RESOURCE).
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]
COUNTING = '#!/bin/sh\necho started >> {log}\nexec /usr/bin/python3 -IS {hook} "$@"\n'
# For one command: the folder that engines read CDI files from, laid over the machine's own, and no second cgroup
# hierarchy, which crun refuses beside the first.
_OF_ITS_OWN = """
umount /sys/fs/cgroup/unified 2>/dev/null
mount -t tmpfs tmpfs /run && mkdir /run/cdi && cp "$0"/*.json /run/cdi/ 2>/dev/null
exec "$@"
"""


def _is_named(folder: Path) -> bool:
    """Tell whether a process has the folder among its arguments."""
    name = os.fsencode(folder)
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if name in each.read_bytes():
                return True
    return False


class Podman:
    """A Podman with its own storage and its own folder of hook files, in which our hook counts its starts."""

    def __init__(self, folder: Path, root: Path, host: Path) -> None:
        self.folder, self.root, self.host, self.log = folder, root, host, folder / "started"
        self.cdi = folder / "cdi"
        for name in ("hooks.d", "cdi"):
            (folder / name).mkdir(parents=True)

    def install(self, text: str, arguments: list[str]) -> None:
        """Write a hook file; its hook is the checkout's, with more arguments."""
        document = json.loads(text)
        document["hook"] |= {
            "path": str(self.counting_hook()),
            "args": [*document["hook"]["args"], *arguments],
        }
        (self.folder / "hooks.d/99-grapnel.json").write_text(json.dumps(document))

    def counting_hook(self) -> Path:
        """Return a program that is the checkout's hook and writes a line first."""
        program = self.folder / "grapnel-hook"
        program.write_text(COUNTING.format(log=self.log, hook=HOOK))
        program.chmod(0o755)
        return program

    def run(self, options: list[str], command: list[str], runtime: str = "runc") -> subprocess.CompletedProcess[str]:
        """Run a container of the root to its end; ``{host}`` in an option is where the driver is."""
        own = [option.format(host=self.host) for option in options]
        given = [*LIMITS, "--network", "none", "--rm", *own, "--rootfs", str(self.root)]
        return self._podman(runtime, "run", *given, *command)

    def starts(self) -> int:
        """Return how often the hook was started."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def close(self) -> None:
        """Take away what it mounted for itself, once its last process, a clean-up of conmon, is gone."""
        wait_until(lambda: not _is_named(self.folder))
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
        for mount in reversed([each for each in mounts if each.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", mount], check=True)

    def _podman(self, runtime: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = {name: str(self.folder / name) for name in ("root", "runroot", "tmpdir")}
        places = [word for name, place in own.items() for word in (f"--{name}", place)]
        engine = ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]
        hooks = ["--hooks-dir", str(self.folder / "hooks.d")]
        argv = ["podman", *places, *engine, "--runtime", runtime, *hooks, *arguments]
        if runtime == "crun" or any(self.cdi.iterdir()):
            argv = ["unshare", "--mount", "sh", "-c", _OF_ITS_OWN, str(self.cdi), *argv]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=environment)
