"""Containers in user namespaces: made by root, by an ordinary user with runc, by an ordinary user with Podman."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime_hook.containers import HOOK, HOOK_ENVIRONMENT, MULTIARCH, START, Container, host_mounts, snapshot
from tests.runtime_hook.drivertree import DriverTree

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.functional

USER = 41234
RANGE = 200_000
HIGH_RANGE = 2_193_096_704  # as the kubelet gives it to a pod with hostUsers: false; negative as a C int
LAST_RANGE = 2**32 - 1 - 65536  # the highest one: its last id is the last that there is
REMOVE_TRIES = 100
SCRIPT = "/bin/probe libcuda.so.1; (: <> /dev/nvidia0) && echo open; ls /dev/nvidia1 2>/dev/null; id -u"
USER_NAMESPACE = ("namespaces", "uidMappings", "gidMappings")
GIVEN = "libcuda.so.1 42\nopen\n0\n"
# A folder that only root of the host may write in, which an ordinary user's namespace shows as nobody's.
ROOTS_FOLDER = (
    'umount /sys/fs/cgroup/unified 2>/dev/null; mount -t tmpfs -o mode=755 none /mnt && cp "$0" /mnt/hook.json'
)


class Ground:
    """A host with a driver and a root for containers, in a folder that every user reaches."""

    def __init__(self, path: Path, pristine: Path, objects: Path) -> None:
        self.path = path
        self.root = Path(shutil.copytree(pristine, path / "root", symlinks=True))
        self.driver = DriverTree(path / "host", objects).build()
        for node in (path / "host/dev").iterdir():
            node.chmod(0o666)
        settings = {"inventory": str(path / "run/inventory.json"), "log": "none", "entitlement": "env"}
        (path / "hook.json").write_text(json.dumps(settings))
        (path / "hook.json").chmod(0o644)

    def container(self, first_id: int, count: int) -> Container:
        arguments = ["--config", str(self.path / "hook.json"), "--root", str(self.path / "host")]
        environment = ["NVIDIA_VISIBLE_DEVICES=0"]
        command = ["/bin/sh", "-c", SCRIPT]
        made = Container(self.path / "bundle", self.root, command, arguments, environment)
        mapping = [{"containerID": 0, "hostID": first_id, "size": count}]
        linux = made.config()["linux"]
        namespaces = [*linux["namespaces"], {"type": "user"}]
        made.changes = {"linux": {**linux, "namespaces": namespaces, "uidMappings": mapping, "gidMappings": mapping}}
        self.give_to(first_id)
        return made

    def give_to(self, user: int) -> None:
        subprocess.run(["chown", "-hR", f"{user}:{user}", str(self.root)], check=True)


@pytest.fixture
def ground(pristine_root: Path, objects: Path) -> Iterator[Ground]:
    """Make a host below /tmp: pytest's own folders are root's alone."""
    path = Path(tempfile.mkdtemp(prefix="grapnel-test-"))
    path.chmod(0o755)
    yield Ground(path, pristine_root, objects)
    remove(path)


def allocated(ground: Ground, first_id: int = HIGH_RANGE) -> Container:
    """Return a container as the kubelet has it made: device nodes in its configuration entitle it."""
    settings = {"inventory": str(ground.path / "run/inventory.json"), "log": str(ground.path / "log")}
    (ground.path / "hook.json").write_text(json.dumps(settings))
    made = ground.container(first_id, 65536)
    made.devices = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
    plain = Container(made.folder, made.root, made.command, devices=made.devices).config()["linux"]
    made.changes = {"linux": {**plain, **{key: made.changes["linux"][key] for key in USER_NAMESPACE}}}
    return made


def remove(path: Path) -> None:
    """Remove a folder in which Podman may still be cleaning up, with the process that holds its user namespace."""
    for _ in range(REMOVE_TRIES):
        for pid in path.rglob("pause.pid"):
            with suppress(ProcessLookupError, ValueError, FileNotFoundError):
                os.kill(int(pid.read_text()), signal.SIGTERM)
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{path} is still in use")


def as_user(argv: list[str], home: Path, before: list[str]) -> subprocess.CompletedProcess[str]:
    """Run as an ordinary user that reaches the hook."""
    if subprocess.run(["setpriv", f"--reuid={USER}", "test", "-x", str(HOOK)], check=False).returncode:
        pytest.skip(f"ordinary users cannot reach {HOOK}")
    home.mkdir(exist_ok=True)
    os.chown(home, USER, USER)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    argv = [*before, *user, *argv]
    return subprocess.run(
        argv, input="", capture_output=True, text=True, timeout=60, env=environment, check=False, cwd=home
    )


@pytest.mark.parametrize("first", [RANGE, HIGH_RANGE, LAST_RANGE])
@pytest.mark.parametrize("runtime", ["runc", "crun", "runc-v2", "crun-v2"])
def test_a_container_with_ids_of_its_own_gets_its_gpu(ground: Ground, runtime: str, first: int) -> None:
    before, mounts, null = snapshot(ground.driver.root), host_mounts(), Path("/dev/null").stat().st_uid
    done = ground.container(first, 65536).run(runtime)
    assert (done.returncode, done.stdout) == (0, GIVEN), done.stderr
    assert Path("/dev/null").stat().st_uid == null, "crun gives its standard input to the container's root"
    assert snapshot(ground.driver.root) == before
    assert host_mounts() == mounts


@pytest.mark.parametrize("runtime", ["crun", "crun-v2"])
def test_crun_that_says_the_bundle_is_the_hosts_root_is_understood(ground: Ground, runtime: str) -> None:
    """So it does for containers with devices and ids of their own; its command line has the bundle."""
    done = allocated(ground).run(runtime)
    assert (done.returncode, done.stdout) == (0, GIVEN), done.stderr


def test_crun_that_tells_the_bundle_nowhere_is_refused_in_words_that_reach_the_log(ground: Ground) -> None:
    """What a hook writes to stderr crun shows nobody."""
    folder = allocated(ground).write()
    name = f"grapnel-test-{os.getpid()}-nowhere"
    crun = [*START["crun"], "--root", str(ground.path / "state")]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(ground.path / "log"))
        log.settimeout(30)
        argv = [*crun, "run", "--bundle", folder.name, name]
        done = subprocess.run(
            argv, input="", capture_output=True, text=True, cwd=folder.parent, timeout=60, check=False
        )
        subprocess.run([*crun, "delete", "--force", name], capture_output=True, check=False)
        line = log.recv(1 << 16).decode()
    assert done.returncode != 0
    assert f"decision=refused container={name} reason=" in line
    assert "names no bundle but /" in line
    assert "--bundle and an absolute path" in line


@pytest.mark.parametrize("first", [RANGE, HIGH_RANGE])
def test_what_the_hook_makes_belongs_to_the_containers_root(ground: Ground, first: int) -> None:
    before = set(snapshot(ground.root))
    ground.container(first, 65536).run()
    made = [Path(path) for path in set(snapshot(ground.root)) - before]
    assert ground.root / MULTIARCH / "libcuda.so.1" in made
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in made} == {(first, first)}


IDMAP = """
import ctypes, os, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
root, first = os.fsencode(sys.argv[1]), sys.argv[2]
holder = subprocess.Popen(["unshare", "--user", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
holder.stdin.write(b"x\\n"), holder.stdin.flush(), holder.stdout.read(2)
for kind in ("uid", "gid"):
    open(f"/proc/{holder.pid}/{kind}_map", "w").write(f"0 {first} 65536")
users = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY)
tree = libc.syscall(428, -100, root, 1)
attributes = struct.pack("QQQQ", 0x100000, 0, 0, users)
assert libc.syscall(442, tree, b"", 0x1000, attributes, len(attributes)) == 0, os.strerror(ctypes.get_errno())
assert libc.syscall(429, tree, b"", -100, root, 4) == 0, os.strerror(ctypes.get_errno())
holder.stdin.close()
os.execvp("runc", ["runc", *sys.argv[3:]])
"""


def test_a_root_whose_owners_are_mapped_by_its_mount(ground: Ground) -> None:
    """On such a mount root of the host has no id: what it makes there fails with EOVERFLOW."""
    made = ground.container(RANGE, 65536)
    ground.give_to(0)
    state = str(ground.path / "state")
    runc = ["--root", state, "run", "--bundle", str(made.write()), f"grapnel-{os.getpid()}-idmap"]
    argv = ["unshare", "--mount", sys.executable, "-c", IDMAP, str(ground.root), str(RANGE), *runc]
    done = subprocess.run(argv, input="", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, GIVEN), done.stderr
    assert (ground.root / MULTIARCH / "libcuda.so.1").lstat().st_uid == 0, "on disk it is root's, as the rest is"


def test_the_hosts_device_nodes_keep_their_mode(ground: Ground) -> None:
    made = ground.container(RANGE, 65536)
    made.command = ["/bin/busybox", "chmod", "600", "/dev/nvidia0"]
    done = made.run()
    assert done.returncode != 0
    assert "Read-only" in done.stderr or "not permitted" in done.stderr
    assert (ground.path / "host/dev/nvidia0").stat().st_mode & 0o777 == 0o666


def test_a_node_that_the_containers_users_could_not_open_is_refused(ground: Ground) -> None:
    (ground.path / "host/dev/nvidia0").chmod(0o660)
    done = ground.container(RANGE, 65536).run()
    assert done.returncode != 0
    assert "mode 660 keeps the container's users out" in done.stderr
    assert "readable and writable for all" in done.stderr


def test_runc_of_an_ordinary_user(ground: Ground) -> None:
    made = ground.container(USER, 1)
    linux = made.changes["linux"]
    namespaces = [entry for entry in linux["namespaces"] if entry["type"] != "network"]
    made.changes = {"linux": {**linux, "namespaces": namespaces, "resources": {}}}
    bundle, mounts = made.write(), host_mounts()
    argv = ["runc", "--root", str(ground.path / "home/state"), "run", "--bundle", str(bundle), f"grapnel-{os.getpid()}"]
    done = as_user(argv, ground.path / "home", [])
    assert (done.returncode, done.stdout) == (0, GIVEN), done.stderr
    assert host_mounts() == mounts


def podman(ground: Ground, config: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a container with Podman as an ordinary user, with the hook's configuration at ``config``."""
    arguments = ["grapnel-hook", "prestart", "--config", config, "--root", str(ground.path / "host")]
    hook: dict[str, Any] = {"path": str(HOOK), "args": arguments, "env": HOOK_ENVIRONMENT}
    (ground.path / "hooks").mkdir()
    content = {"version": "1.0.0", "hook": hook, "when": {"always": True}, "stages": ["prestart"]}
    (ground.path / "hooks/grapnel.json").write_text(json.dumps(content))
    ground.give_to(USER)
    home = ground.path / "home"
    storage = ["--root", f"{home}/storage", "--runroot", f"{home}/run", "--storage-driver", "vfs"]
    engine = ["--cgroup-manager", "cgroupfs", "--events-backend", "none", "--hooks-dir", f"{ground.path}/hooks"]
    run = ["run", "--rm", "--network", "none", "--security-opt", "seccomp=unconfined", "--pull", "never"]
    command = ["--env", "NVIDIA_VISIBLE_DEVICES=0", "--rootfs", str(ground.root), "/bin/sh", "-c", SCRIPT]
    argv = ["podman", *storage, *engine, "--log-level", "error", *options, *run, *command]
    script = f'{ROOTS_FOLDER} && exec "$@"'
    return as_user(argv, home, ["unshare", "--mount", "sh", "-c", script, str(ground.path / "hook.json")])


@pytest.mark.skipif(shutil.which("podman") is None, reason="there is no podman: apt-get install podman")
def test_podman_of_an_ordinary_user(ground: Ground) -> None:
    before = snapshot(ground.driver.root)
    done = podman(ground, "/mnt/hook.json", "--runtime", "runc")
    assert (done.returncode, done.stdout) == (0, GIVEN), done.stderr
    assert snapshot(ground.driver.root) == before


@pytest.mark.skipif(shutil.which("podman") is None, reason="there is no podman: apt-get install podman")
def test_a_configuration_that_others_could_have_put_there_is_refused(ground: Ground) -> None:
    """In a user namespace root's files and anybody's look alike: below /tmp nothing tells them apart."""
    done = podman(ground, str(ground.path / "hook.json"), "--runtime", "runc")
    assert done.returncode != 0
    assert "hook.json belongs to user 65534" in done.stderr
