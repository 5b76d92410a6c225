"""Runs a containerd for one test: real binaries from .deb packages, all its state in one folder, nothing left behind.

    programs = unpack(packages("trixie"), folder / "packages")
    with containerd(folder, programs, {"nvidia": Handler(base_runtime_spec=file)}) as engine, engine.cri() as cri:
        engine.import_image(images.archive("pause"))

Needs root. It shares the machine's kernel and cgroups, but no socket, no state and no image with an installed engine.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import bundle
from lab.cri.client import Cri
from lab.cri.errors import CriError, EngineError
from lab.machine.command import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PAUSE_IMAGE = "docker.io/local/pause:1"
_START_TIMEOUT_S = 30
_STOP_TIMEOUT_S = 20
_COMMAND_TIMEOUT_S = 60
_POLL_S = 0.05
_LOG_TAIL = 4000
_OLD = 2  # version of a configuration file
_NO_CRI = "unknown service"  # containerd serves only once its plugins are loaded, so it never will
# A network plugin that answers with an address and makes no interface: tests leave the host's network alone.
_ADDRESS = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "eth0", "sandbox": "/"}],
    "ips": [{"address": "192.0.2.2/32", "interface": 0}],
}
_NETWORK = {"cniVersion": "1.0.0", "name": "alone", "plugins": [{"type": "alone"}]}
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Handler:
    """A runtime handler: a base OCI specification, annotations to pass on, and a runc other than PATH's."""

    base_runtime_spec: Path | None = None
    runc: Path | None = None
    container_annotations: Sequence[str] = ()
    pod_annotations: Sequence[str] = ()


@dataclass(frozen=True)
class Engine:
    """A running containerd."""

    folder: Path
    programs: Path
    socket: Path
    cgroup_parent: str
    env: Mapping[str, str] = field(repr=False)

    def cri(self, *, timeout_s: float = 60) -> Cri:
        """Return a client whose pods have their cgroups below this engine's."""
        return Cri(self.socket, timeout_s=timeout_s, cgroup_parent=self.cgroup_parent)

    def import_image(self, archive: Path) -> None:
        """Load an image archive for the CRI. Raises LabError."""
        self.ctr("images", "import", str(archive))

    def ctr(self, *arguments: str) -> str:
        """Run `ctr` in the CRI's namespace and return what it prints. Raises LabError."""
        command = [str(self.programs / "ctr"), "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        return run(command, timeout_s=_COMMAND_TIMEOUT_S, env=self.env).stdout


def packages(suite: str) -> list[Path]:
    """Return the packages of a suite's containerd, and of a runc that runs with this machine's C library."""
    own = platform.freedesktop_os_release()["VERSION_CODENAME"]
    return [*bundle.deb_paths(suite, ["containerd"]), *bundle.deb_paths(own, ["runc"])]


def unpack(debs: Sequence[Path], folder: Path) -> Path:
    """Unpack packages below a folder; return the folder with their programs."""
    for deb in debs:
        run(["dpkg-deb", "-x", str(deb), str(folder)], timeout_s=_COMMAND_TIMEOUT_S)
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for program in [*folder.glob("usr/bin/*"), *folder.glob("usr/sbin/*")]:
        program.replace(programs / program.name)
    return programs


def default_spec(programs: Path) -> dict[str, Any]:
    """Return containerd's default OCI specification, as a basis for `Handler.base_runtime_spec`."""
    printed = run([str(programs / "ctr"), "oci", "spec"], timeout_s=_COMMAND_TIMEOUT_S).stdout
    spec: dict[str, Any] = json.loads(printed)
    return spec


@contextmanager
def containerd(
    folder: Path,
    programs: Path,
    handlers: Mapping[str, Handler] | None = None,
    *,
    version: int = 2,
    cdi: Path | None = None,
    has_network: bool = False,
) -> Iterator[Engine]:
    """Run containerd from a folder with programs until the block ends; remaining pods are removed.

    `runc` is the default handler, `handlers` are added. `version` is that of the configuration file (3 for
    containerd 2), `cdi` a folder of CDI files (containerd 1.7 and later). With `has_network`
    (containerd 2) pods can have a network namespace of their own, with no interface but loopback. Raises EngineError.
    """
    socket = folder / "containerd.sock"
    config = folder / "config.toml"
    handlers = {"runc": Handler(), **(handlers or {})}
    config.write_text(render_config(folder, socket, handlers, version=version, cdi=cdi, has_network=has_network))
    if has_network:
        _add_network(folder)
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": "/root"}
    engine = Engine(folder, programs, socket, f"/grapnel-test-{os.getpid()}-{folder.name}", env)
    with (folder / "containerd.log").open("wb") as log:
        daemon = subprocess.Popen([programs / "containerd", "--config", str(config)], stdout=log, stderr=log, env=env)
    try:
        _await_socket(engine, daemon)
        yield engine
    finally:
        with suppress(CriError), engine.cri(timeout_s=_STOP_TIMEOUT_S) as cri:
            cri.remove_all()
        _end(daemon)
        _end_shims(engine)
        _unmount_below(folder)
        _remove_cgroups(engine.cgroup_parent)


def render_config(
    folder: Path,
    socket: Path,
    handlers: Mapping[str, Handler],
    *,
    version: int = 2,
    cdi: Path | None = None,
    has_network: bool = False,
) -> str:
    """Return containerd's configuration with all its state below a folder."""
    runtime = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}[version]
    pause = {
        2: f'[plugins."{runtime}"]\nsandbox_image = "{PAUSE_IMAGE}"\n',
        3: f'[plugins."io.containerd.cri.v1.images".pinned_images]\nsandbox = "{PAUSE_IMAGE}"\n[plugins."{runtime}"]\n',
    }[version]
    # In version 3, containerd 2.4 has neither enable_cdi (on since 2.0) nor bin_dir (bin_dirs since 2.1).
    is_old = version == _OLD
    cni = f'"{folder / "cni-bin" if has_network else "/usr/lib/cni"}"'
    head = f"""version = {version}
root = "{folder}/root"
state = "{folder}/state"
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{folder}/opt"
{pause}restrict_oom_score_adj = true
disable_apparmor = true
{"enable_cdi = true" if cdi and is_old else ""}
{f'cdi_spec_dirs = ["{cdi}"]' if cdi else ""}
[plugins."{runtime}".cni]
conf_dir = "{folder}/cni"
{f"bin_dir = {cni}" if is_old else f"bin_dirs = [{cni}]"}
{"use_internal_loopback = true" if has_network else ""}
"""
    return head + "".join(_render_handler(runtime, name, handler) for name, handler in handlers.items())


def _add_network(folder: Path) -> None:
    for name in ("cni", "cni-bin"):
        (folder / name).mkdir()
    (folder / "cni/alone.conflist").write_text(json.dumps(_NETWORK))
    plugin = folder / "cni-bin/alone"
    plugin.write_text(f"#!/bin/sh\ncat > /dev/null\necho '{json.dumps(_ADDRESS)}'\n")
    plugin.chmod(0o755)


def _render_handler(runtime: str, name: str, handler: Handler) -> str:
    lines = [
        f'[plugins."{runtime}".containerd.runtimes."{name}"]',
        'runtime_type = "io.containerd.runc.v2"',
        f"container_annotations = {json.dumps(list(handler.container_annotations))}",
        f"pod_annotations = {json.dumps(list(handler.pod_annotations))}",
        *([f'base_runtime_spec = "{handler.base_runtime_spec}"'] if handler.base_runtime_spec else []),
        f'[plugins."{runtime}".containerd.runtimes."{name}".options]',
        "SystemdCgroup = false",
        *([f'BinaryName = "{handler.runc}"'] if handler.runc else []),
    ]
    return "\n".join(lines) + "\n"


def _await_socket(engine: Engine, daemon: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_TIMEOUT_S
    while (problem := _probe(engine)) is not None:
        is_final = _NO_CRI in str(problem) or daemon.poll() is not None
        if is_final or time.monotonic() > end:
            log = (engine.folder / "containerd.log").read_text(errors="replace")
            raise EngineError(f"containerd in {engine.folder} does not answer: {problem}", hint=log[-_LOG_TAIL:])
        time.sleep(_POLL_S)


def _probe(engine: Engine) -> CriError | None:
    """Return why the engine's CRI does not answer; None if it does."""
    try:
        with engine.cri(timeout_s=1) as cri:
            cri.version()
    except CriError as error:
        return error
    return None


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _end_shims(engine: Engine) -> None:
    """Kill shims left by a failed test, recognised by this engine's own programs."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program = Path(os.readlink(process / "exe"))  # Path.readlink would resolve nothing more
        except OSError:
            continue
        if program.parent == engine.programs:
            os.kill(int(process.name), signal.SIGKILL)


def _unmount_below(folder: Path) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        run(["umount", "--lazy", mount], timeout_s=_COMMAND_TIMEOUT_S, check=False)
    shutil.rmtree(folder / "state", ignore_errors=True)


def _remove_cgroups(parent: str) -> None:
    """Remove the pods' cgroups after killing what still runs in them."""
    for top in _CGROUPS.glob(f"*{parent}"):
        groups = sorted((path for path in [top, *top.rglob("*")] if path.is_dir()), reverse=True)
        end = time.monotonic() + _STOP_TIMEOUT_S
        while members := [pid for group in groups for pid in (group / "cgroup.procs").read_text().split()]:
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            if time.monotonic() > end:
                raise EngineError(f"processes in {top} do not end", hint=f"pids: {' '.join(members)}")
            time.sleep(_POLL_S)
        for group in groups:
            group.rmdir()
