"""A containerd for one test: real binaries from .deb packages, all its state in one folder, nothing left afterwards.

Needs root. It shares the machine's kernel and cgroups, but no socket, no state and no image with an installed engine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cri.client import Cri
from lab.cri.errors import CriError, EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PAUSE_IMAGE = "docker.io/local/pause:1"
_START_TIMEOUT_S = 30
_STOP_TIMEOUT_S = 20
_COMMAND_TIMEOUT_S = 60
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Handler:
    """A runtime handler: runc, with an OCI specification to begin from and annotations to hand on."""

    base_runtime_spec: Path | None = None
    container_annotations: Sequence[str] = ()
    pod_annotations: Sequence[str] = ()


@dataclass(frozen=True)
class Engine:
    """A running containerd."""

    folder: Path
    binaries: Path
    socket: Path
    cgroup_parent: str
    env: Mapping[str, str] = field(repr=False)

    def cri(self, *, timeout_s: float = 60) -> Cri:
        """Return a client whose pods have their cgroups below this engine's."""
        return Cri(self.socket, timeout_s=timeout_s, cgroup_parent=self.cgroup_parent)

    def import_image(self, archive: Path) -> None:
        """Load an image archive for the CRI. Raises EngineError."""
        self.ctr("images", "import", str(archive))

    def ctr(self, *arguments: str) -> str:
        """Run `ctr` in the CRI's namespace and return what it prints. Raises EngineError."""
        command = [str(self.binaries / "ctr"), "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, env=dict(self.env)
        )
        if done.returncode:
            raise EngineError(f"ctr {arguments[0]} failed: {done.stderr.strip()}")
        return done.stdout


@contextmanager
def containerd(
    folder: Path, debs: Sequence[Path], handlers: Mapping[str, Handler] | None = None, *, version: int = 2
) -> Iterator[Engine]:
    """Run containerd from its and runc's packages until the block ends; pods that are left are removed.

    `runc` is the default handler, `handlers` come on top. `version` is that of the configuration file (3 for
    containerd 2). Raises EngineError.
    """
    binaries = _unpack(debs, folder / "packages")
    socket = folder / "containerd.sock"
    config = folder / "config.toml"
    config.write_text(render_config(folder, socket, {"runc": Handler(), **(handlers or {})}, version=version))
    env = {"PATH": f"{binaries}:{os.environ['PATH']}", "HOME": "/root"}
    engine = Engine(folder, binaries, socket, f"/grapnel-test-{os.getpid()}-{folder.name}", env)
    with (folder / "containerd.log").open("wb") as log:
        daemon = subprocess.Popen([binaries / "containerd", "--config", str(config)], stdout=log, stderr=log, env=env)
    try:
        _await_socket(engine, daemon)
        yield engine
        with engine.cri() as cri:
            cri.remove_all()
    finally:
        _end(daemon)
        _end_shims(engine)
        _unmount_below(folder)
        _remove_cgroups(engine.cgroup_parent)


def render_config(folder: Path, socket: Path, handlers: Mapping[str, Handler], *, version: int = 2) -> str:
    """Return containerd's configuration with all its state below a folder."""
    runtime = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}[version]
    pause = {
        2: f'[plugins."{runtime}"]\nsandbox_image = "{PAUSE_IMAGE}"\n',
        3: f'[plugins."io.containerd.cri.v1.images".pinned_images]\nsandbox = "{PAUSE_IMAGE}"\n[plugins."{runtime}"]\n',
    }[version]
    head = f"""version = {version}
root = "{folder}/root"
state = "{folder}/state"
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{folder}/opt"
{pause}restrict_oom_score_adj = true
disable_apparmor = true
[plugins."{runtime}".cni]
conf_dir = "{folder}/cni"
bin_dir = "/usr/lib/cni"
"""
    return head + "".join(_render_handler(runtime, name, handler) for name, handler in handlers.items())


def _render_handler(runtime: str, name: str, handler: Handler) -> str:
    lines = [
        f'[plugins."{runtime}".containerd.runtimes."{name}"]',
        'runtime_type = "io.containerd.runc.v2"',
        f"container_annotations = {json.dumps(list(handler.container_annotations))}",
        f"pod_annotations = {json.dumps(list(handler.pod_annotations))}",
        *([f'base_runtime_spec = "{handler.base_runtime_spec}"'] if handler.base_runtime_spec else []),
        f'[plugins."{runtime}".containerd.runtimes."{name}".options]',
        "SystemdCgroup = false",
    ]
    return "\n".join(lines) + "\n"


def _unpack(debs: Sequence[Path], folder: Path) -> Path:
    """Unpack packages and return the folder in which their programs are."""
    for deb in debs:
        subprocess.run(["dpkg-deb", "-x", str(deb), str(folder)], check=True, timeout=_COMMAND_TIMEOUT_S)
    binaries = folder / "programs"
    binaries.mkdir(exist_ok=True)
    for program in [*folder.glob("usr/bin/*"), *folder.glob("usr/sbin/*")]:
        program.replace(binaries / program.name)
    return binaries


def _await_socket(engine: Engine, daemon: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            with engine.cri(timeout_s=1) as cri:
                cri.version()
        except CriError as error:
            if daemon.poll() is None and time.monotonic() < end:
                continue
            log = (engine.folder / "containerd.log").read_text(errors="replace")
            raise EngineError(f"containerd in {engine.folder} does not answer", hint=log[-2000:]) from error
        return


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _end_shims(engine: Engine) -> None:
    """End shims that outlived a failed test: those that were started from this engine's own programs."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program = Path(os.readlink(process / "exe"))  # noqa: PTH115 - Path.readlink would resolve nothing more
        except OSError:
            continue
        if program.parent == engine.binaries:
            os.kill(int(process.name), 9)


def _unmount_below(folder: Path) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, timeout=_COMMAND_TIMEOUT_S)
    shutil.rmtree(folder / "state", ignore_errors=True)


def _remove_cgroups(parent: str) -> None:
    for top in _CGROUPS.glob(f"*{parent}"):
        for group in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
            group.rmdir()
        top.rmdir()
