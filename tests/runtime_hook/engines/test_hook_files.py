"""The hook file that grapnel writes for CRI-O and Podman, read by a real Podman: when it starts the hook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provision.render.hooks_d import render_hooks_d
from tests.provision.samples import make_stack
from tests.runtime_hook.containers import HOOK
from tests.runtime_hook.drivertree import uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.runtime_hook.drivertree import DriverTree

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(shutil.which("podman") is None, reason="there is no podman: apt-get install podman"),
]

PODMAN: dict[str, Any] = {"runtime": {"engine": "podman", "entitlement": "env"}, "plugin": {"enabled": False}}
CRIO: dict[str, Any] = {"runtime": {"engine": "crio"}}
ALL = ["--env", "NVIDIA_VISIBLE_DEVICES=all"]
HANDLER = ["--annotation", "grapnel.dev/handler=nvidia"]
# As the device plugin's answer: the annotation, which makes the hook start, and the device, which entitles.
NODES = ("nvidiactl", "nvidia-uvm", "nvidia0")
ALLOCATION = ["--annotation", f"grapnel.dev/allocation={uuid(0)}"]
ALLOCATION += [word for name in NODES for word in ("--device", f"{{host}}/dev/{name}:/dev/{name}:rw")]
FORGED = ["--annotation", f"grapnel.dev/allocation={uuid(0)}"]
# Podman's own limits are higher than what root may have here (CAP_SYS_RESOURCE).
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]
COUNTING = '#!/bin/sh\necho started >> {log}\nexec /usr/bin/python3 -IS {hook} "$@"\n'


class Podman:
    """A Podman with its own storage and its own folder of hook files, in which our hook counts its starts."""

    def __init__(self, folder: Path, root: Path, host: Path) -> None:
        self.folder, self.root, self.host, self.log = folder, root, host, folder / "started"
        (folder / "hooks.d").mkdir(parents=True)

    def install(self, text: str, arguments: list[str]) -> None:
        """Write a hook file; its hook is the checkout's, with more arguments."""
        program = self.folder / "grapnel-hook"
        program.write_text(COUNTING.format(log=self.log, hook=HOOK))
        program.chmod(0o755)
        document = json.loads(text)
        document["hook"] |= {"path": str(program), "args": [*document["hook"]["args"], *arguments]}
        (self.folder / "hooks.d/99-grapnel.json").write_text(json.dumps(document))

    def run(self, options: list[str], command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a container of the root to its end; ``{host}`` in an option is where the driver is."""
        own = [option.format(host=self.host) for option in options]
        given = [*LIMITS, "--network", "none", "--rm", *own, "--rootfs", str(self.root)]
        return self._podman("run", *given, *command)

    def starts(self) -> int:
        """Return how often the hook was started."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def close(self) -> None:
        """Take away what it mounted for itself."""
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
        for mount in reversed([each for each in mounts if each.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", mount], check=True)

    def _podman(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = {name: str(self.folder / name) for name in ("root", "runroot", "tmpdir")}
        places = [word for name, place in own.items() for word in (f"--{name}", place)]
        engine = ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]
        argv = [
            "podman",
            *places,
            *engine,
            "--runtime",
            "runc",
            "--hooks-dir",
            str(self.folder / "hooks.d"),
            *arguments,
        ]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=environment)


@pytest.fixture
def podman(root: Path, driver: DriverTree) -> Iterator[Podman]:
    """A Podman on a host with the driver; its run root must have a path of at most 50 characters."""
    with tempfile.TemporaryDirectory(prefix="grapnel-podman-") as folder:
        made = Podman(Path(folder), root, driver.root)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.parametrize(
    ("sections", "options", "outcome"),
    [
        pytest.param(PODMAN, ALL, (1, 42), id="the environment asks where it counts"),
        pytest.param(PODMAN, [], (1, -1), id="it does not: the schema cannot tell, the hook can"),
        pytest.param(CRIO, [*HANDLER, *ALLOCATION], (1, 42), id="an allocation in a pod of the handler"),
        pytest.param(CRIO, [*HANDLER, *FORGED], (1, -1), id="a forged one: started, for nothing"),
        pytest.param(CRIO, [*HANDLER, *ALL], (0, -1), id="no allocation: not even started"),
        pytest.param(CRIO, [*ALLOCATION, *ALL], (0, -1), id="another handler: not even started"),
        pytest.param(CRIO, [], (0, -1), id="nothing: not even started"),
    ],
)
def test_starts_of_the_hook_and_what_they_bring(
    podman: Podman,
    configure: Callable[..., list[str]],
    sections: dict[str, Any],
    options: list[str],
    outcome: tuple[int, int],
) -> None:
    stack = make_stack(**sections)
    podman.install(render_hooks_d(stack), configure(entitlement=stack.runtime.entitlement.value))

    done = podman.run(options, ["/bin/probe", "libcuda.so.1"])

    starts, answer = outcome
    assert (done.returncode, done.stdout) == (0, f"libcuda.so.1 {answer}\n"), done.stderr
    assert podman.starts() == starts
