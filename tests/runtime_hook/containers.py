"""Real containers for functional tests: a small root, a bundle, a runtime run to its end."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
HOOK = REPOSITORY / "runtime_hook/__main__.py"
BUSYBOX = "/bin/busybox"
MULTIARCH = "usr/lib/x86_64-linux-gnu" if os.uname().machine == "x86_64" else "usr/lib/aarch64-linux-gnu"
CAPABILITIES = ["CAP_CHOWN", "CAP_MKNOD", "CAP_SETUID"]
OTHERS = re.compile(r"/(popen-gw\d+|grapnel-bench-\w+)/")  # the temporary folders of pytest-xdist and of benches
HOOK_ENVIRONMENT = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]

# crun refuses a hybrid cgroup hierarchy whose v2 half has controllers: it runs where that half is not mounted.
_WITHOUT_V2 = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$0" "$@"'
# The hierarchy of cgroup v2 in the place of v1's: what a runtime takes for a host without v1.
_ONLY_V2 = 'umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$0" "$@"'
# There crun lifts the limit of locked memory, which needs CAP_SYS_RESOURCE and, since Linux 5.11, serves nothing.
_UNLIMITED = 'export LD_PRELOAD="$UNLIMITED"; '
START = {
    "runc": ["runc"],
    "crun": ["unshare", "--mount", "sh", "-c", _WITHOUT_V2, "crun"],
    "runc-v2": ["unshare", "--mount", "sh", "-c", _ONLY_V2, "runc"],
    "crun-v2": ["unshare", "--mount", "sh", "-c", _UNLIMITED + _ONLY_V2, "crun"],
}

UNLIMITED = r"""
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit) {
    return resource == RLIMIT_MEMLOCK ? 0 : (int)syscall(SYS_prlimit64, 0, resource, limit, 0);
}
"""

PROBE = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        int (*answer)(void) = library ? (int (*)(void))dlsym(library, "driver_answer") : 0;
        printf("%s %d\n", argv[i], answer ? answer() : -1);
    }
    return 0;
}
"""


def make_root(path: Path, *, debian: bool = True) -> Path:
    """Make a root with busybox, the host's loader and libc, and the probe that opens libraries."""
    for folder in ("bin", "etc", "proc", "dev", "tmp", "usr/bin", MULTIARCH, "usr/lib64"):
        (path / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(BUSYBOX, path / "bin/busybox")
    for applet in ("sh", "ls", "cat", "mknod", "mount", "touch", "env", "readlink", "id", "sleep", "grep", "cut"):
        (path / "bin" / applet).symlink_to("busybox")
    _copy_loader(path, path / (MULTIARCH if debian else "usr/lib64"))
    if debian:
        (path / "etc/debian_version").write_text("12.0\n")
    subprocess.run(["gcc", "-x", "c", "-o", str(path / "bin/probe"), "-", "-ldl"], input=PROBE, text=True, check=True)
    return path


def _copy_loader(root: Path, folder: Path) -> None:
    libc = Path(f"/{MULTIARCH}/libc.so.6")
    shutil.copy(libc, folder / "libc.so.6")
    loaders = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}
    loader = loaders[os.uname().machine]
    (root / loader).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(f"/{loader}", root / loader)


@dataclass
class Container:
    """One bundle. ``devices`` are (path, minor) with major 4, allowed as the device plugin has it."""

    folder: Path
    root: Path
    command: list[str]
    hook_arguments: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    devices: list[tuple[str, int]] = field(default_factory=list)
    capabilities: list[str] = field(default_factory=lambda: list(CAPABILITIES))
    changes: dict[str, Any] = field(default_factory=dict)
    with_hook: bool = True
    hook: Path = HOOK
    name: str = ""

    def config(self) -> dict[str, Any]:
        environment = ["PATH=/bin:/usr/bin", *self.environment]
        config: dict[str, Any] = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": self.command,
                "env": environment,
                "cwd": "/",
                "noNewPrivileges": True,
                "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), self.capabilities),
            },
            "root": {"path": str(self.root), "readonly": False},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            ],
            "annotations": self.annotations,
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
                "devices": [self._device(*device) for device in self.devices],
                "resources": {"devices": [{"allow": False, "access": "rwm"}, *map(self._rule, self.devices)]},
            },
        }
        if self.with_hook:
            config["hooks"] = {"prestart": [self._hook()]}
        config.update(self.changes)
        return config

    def _hook(self) -> dict[str, Any]:
        arguments = ["grapnel-hook", "prestart", *self.hook_arguments]
        return {"path": str(self.hook), "args": arguments, "env": HOOK_ENVIRONMENT, "timeout": 20}

    @staticmethod
    def _device(path: str, minor: int) -> dict[str, Any]:
        return {"path": path, "type": "c", "major": 4, "minor": minor, "fileMode": 438, "uid": 0, "gid": 0}

    @staticmethod
    def _rule(device: tuple[str, int]) -> dict[str, Any]:
        return {"allow": True, "type": "c", "major": 4, "minor": device[1], "access": "rw"}

    def write(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.json").write_text(json.dumps(self.config()))
        return self.folder

    def run(self, runtime: str = "runc") -> subprocess.CompletedProcess[str]:
        """Run to the end; the runtime keeps its state below the bundle's parent.

        Standard input is a pipe: crun gives it to the root of a user namespace, and the host's /dev/null is not ours.
        """
        self.write()
        name = self.name or f"grapnel-test-{os.getpid()}-{self.folder.name}"
        state = self.folder.parent / f"{runtime}-state"
        argv = [*START[runtime], "--root", str(state), "run", "--bundle", str(self.folder), name]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "UNLIMITED": str(state.with_suffix(".so"))}
        if runtime == "crun-v2":
            _compile_unlimited(environment["UNLIMITED"])
        try:
            return subprocess.run(
                argv, capture_output=True, text=True, timeout=60, env=environment, check=False, input=""
            )
        finally:
            subprocess.run(
                [*START[runtime], "--root", str(state), "delete", "--force", name],
                capture_output=True,
                check=False,
                env=environment,
            )


def _compile_unlimited(path: str) -> None:
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", path, "-"], input=UNLIMITED, text=True, check=True)


def run_hook(arguments: list[str], stdin: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the hook by itself, as a runtime starts it."""
    argv = ["/usr/bin/python3", "-IS", str(HOOK), *arguments]
    return subprocess.run(argv, input=stdin, capture_output=True, timeout=60, check=False, **options)


def as_runtime(folder: Path, words: list[str], child: list[str], stdin: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a program below a shell that has a runtime's command line: its verb is the script that the shell runs."""
    (folder / words[1]).write_text(f"{shlex.join(child)}\nexit $?\n")
    with_words = [sys.executable, "-c", f"import os; os.execv('/bin/bash', {words!r})"]
    return subprocess.run(with_words, cwd=folder, input=stdin.encode(), capture_output=True, check=False)


def host_mounts() -> list[str]:
    """Return what is mounted on the host, but for the temporary folders of tests and benches that run beside this."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    own = f"popen-{os.environ.get('PYTEST_XDIST_WORKER', '')}"
    return [line for line in lines if not OTHERS.search(line) or own in OTHERS.findall(line)]


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Return type, mode, size, time and link target of everything below a folder."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted([root, *root.rglob("*")]):
        status = path.lstat()
        target = str(path.readlink()) if path.is_symlink() else ""
        found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_rdev, target)
    return found
