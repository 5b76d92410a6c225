"""What another user of the node, or a container, does to a control daemon's folders: with real users.

The first version let everybody write in these folders. The lab's program opens its names as NVIDIA's does.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import MpsError
from plugin.sharing.mps.folders import keep_own, prepare_folders
from plugin.sharing.mps.units import _LOG_OPTIONS, _SHM_OPTIONS
from tests.plugin.fakes import gpu
from tests.plugin.mps.node import Daemon, Node, live, until

if TYPE_CHECKING:
    from plugin.sharing.mps.plan import MpsDaemon

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="takes two users of the machine"),
]
FIRST = gpu(0).uuid
PYTHON = "/usr/bin/python3"  # that others may start, too
NOBODY, SOMEBODY = 65534, 65533
SECRET = b"root alone reads this\n"
NAMES = ("control", "control_lock", "log", "nvidia-cuda-mps-control.pid")
# Does all of it, whatever fails, and says what did not.
ATTACK = """
import os, socket, sys
pipe, log, secret = sys.argv[1:]
done = []
def attempt(what, act):
    try:
        act()
        done.append(what)
    except OSError:
        pass
def fill():
    with open(f"{pipe}/filling", "wb") as file:
        file.write(bytes(1 << 16))
for name in ("control", "control_lock", "log", "nvidia-cuda-mps-control.pid"):
    attempt("rename", lambda: os.rename(f"{pipe}/{name}", f"{pipe}/{name}.away"))
    attempt("remove", lambda: os.unlink(f"{pipe}/{name}.away"))
    if name != "control":
        attempt("link", lambda: os.symlink(f"{secret}/{name}", f"{pipe}/{name}"))
for name in ("control.log", "server.log"):
    attempt("rename", lambda: os.rename(f"{log}/{name}", f"{log}/{name}.away"))
    attempt("link", lambda: os.symlink(f"{secret}/{name}", f"{log}/{name}"))
attempt("fill", fill)
attempt("lock", lambda: os.truncate(f"{pipe}/control_lock", 1 << 20))
attempt("socket", lambda: socket.socket(socket.AF_UNIX).bind(f"{pipe}/control"))
print(*sorted(set(done)))
"""
# A control daemon that is none: agrees with everything.
IMPOSTOR = """
import os, socket, sys
place, limits = sys.argv[1], {"get_default_active_thread_percentage": "25.0"}
os.path.lexists(place) and os.rename(place, place + ".away")
listener = socket.socket(socket.AF_UNIX)
listener.bind(place)
listener.listen(8)
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    said = connection.recv(4096).decode().strip()
    connection.sendall((limits.get(said, "20G") if said.startswith("get_default") else "").encode() + b"\\n\\0")
"""


def attack(daemon: MpsDaemon, secret: Path, user: int = NOBODY) -> set[str]:
    """Attack a daemon's folders as another user; returns what succeeded."""
    command = [PYTHON, "-IS", "-c", ATTACK, str(daemon.pipe), str(daemon.log), str(secret)]
    done = subprocess.run(
        command, user=user, group=user, extra_groups=[], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def open_as_before(daemon: MpsDaemon) -> None:
    """Have the folders as the first version made them."""
    for folder in (daemon.pipe, daemon.log):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)


def with_own_mounts(script: str, environment: dict[str, str] | None = None) -> str:
    """Return what a script prints that mounts things for itself; some of its commands are to fail."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.fixture
def secret(node: Node) -> Path:
    """A folder of root's alone, with files under the names that root's programs open."""
    folder = node.root.parent / "secret"
    folder.mkdir(mode=0o700)
    for name in ("log", "nvidia-cuda-mps-control.pid", "control.log"):
        (folder / name).write_bytes(SECRET)
        (folder / name).chmod(0o600)
    return folder


def seen(secret: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mode & 0o777) for path in secret.iterdir()}


def test_nobody_else_renames_replaces_or_fills_anything_of_a_daemon_that_runs(node: Node, secret: Path) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        assert attack(spec, secret) == set()
        server = Path("/proc", node.connect(daemon.supervisor, FIRST, user=NOBODY).said.split()[1])
        await until(lambda: (server / "comm").read_text() == "nvidia-cuda-mps\n")  # it could connect, and open the pipe
        await until(lambda: server.stat().st_uid == NOBODY)

    live(node, act)


def test_links_lead_root_nowhere_when_a_control_daemon_starts_again(node: Node, secret: Path) -> None:
    (spec,) = node.plan().daemons
    before = seen(secret)

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        pid = node.pid(spec)
        attack(spec, secret)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: bool(daemon.supervisor.problem(FIRST)))
        await daemon.up(FIRST)

    live(node, act)
    assert seen(secret) == before


def test_what_others_left_in_folders_of_an_earlier_version_is_gone_before_root_opens_it(
    node: Node, secret: Path
) -> None:
    (spec,) = node.plan().daemons
    before = seen(secret)
    open_as_before(spec)
    assert attack(spec, secret) >= {"link", "socket", "fill"}
    (spec.pipe / "control_privileged").mkdir()  # nor can a folder take a socket's place
    os.chown(spec.pipe / "control_privileged", NOBODY, NOBODY)

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)

    live(node, act)
    assert seen(secret) == before
    assert {path.name for path in spec.pipe.iterdir()} == set(NAMES)
    assert {path.lstat().st_uid for path in (*spec.pipe.iterdir(), *spec.log.iterdir())} == {0}


def test_an_answer_from_somebody_else_s_socket_is_not_believed(node: Node) -> None:
    """A daemon that is restarted finds the control daemon of an earlier version, in folders that all could write in."""
    (spec,) = node.plan().daemons

    async def before(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)

    async def after(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        assert (spec.pipe / "control").lstat().st_uid == 0
        assert node.connect(daemon.supervisor, FIRST).said.endswith(f"threads 25 {FIRST}=20480M")

    live(node, before)
    open_as_before(spec)
    command = [PYTHON, "-IS", "-c", IMPOSTOR, str(spec.pipe / "control")]
    with subprocess.Popen(
        command, user=NOBODY, group=NOBODY, extra_groups=[], stdout=subprocess.PIPE, text=True
    ) as impostor:
        assert impostor.stdout is not None
        assert impostor.stdout.readline() == "ready\n"
        try:
            live(node, after, start_s=5)  # so long the socket is taken for that of one that starts
        finally:
            impostor.kill()


def test_folders_of_a_daemon_that_runs_on_are_closed(node: Node, secret: Path) -> None:
    (spec,) = node.plan().daemons

    async def before(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)

    async def after(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        assert attack(spec, secret) == set()

    live(node, before)
    pid = node.pid(spec)
    open_as_before(spec)
    live(node, after)
    assert node.pid(spec) == pid


def test_a_container_connects_through_its_mount_and_changes_nothing_behind_it(node: Node) -> None:
    """As root of the machine, which is more than a container's: what keeps it is that the mount is for reading."""
    (spec,) = node.plan().daemons
    inside = (
        f'mount --bind {spec.pipe} {spec.pipe}; mount -o remount,bind,"$MODE",nosuid,nodev,noexec {spec.pipe}\n'
        f"ln -s /etc/shadow {spec.pipe}/new && echo linked\n"
        f"mv {spec.pipe}/control {spec.pipe}/other && echo renamed\n"
        f"rm {spec.pipe}/control_lock && echo removed\n"
        f"echo x > {spec.pipe}/nvidia-cuda-mps-control.pid && echo written\n"
        f"{node.programs.client} {NOBODY} < /dev/null\n"
    )

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        answer = daemon.supervisor.answer([FIRST])
        mode = "ro" if next(each for each in answer.mounts if each.host_path == str(spec.pipe)).read_only else "rw"
        environment = {**dict(answer.variables), "PATH": os.environ["PATH"], "MODE": mode}
        assert with_own_mounts(inside, environment).startswith("server ")

    live(node, act)


def test_one_user_of_shared_memory_neither_renames_another_one_s_nor_takes_more_than_there_is(tmp_path: Path) -> None:
    inside = (
        f"mount -t tmpfs -o {_SHM_OPTIONS} test {tmp_path}; cd {tmp_path}\n"
        f"setpriv --reuid {SOMEBODY} --clear-groups sh -c 'echo mine > cuda.shm'\n"
        f"setpriv --reuid {NOBODY} --clear-groups sh -c 'mv cuda.shm other; rm -f cuda.shm; ln -s x cuda.shm'\n"
        f"setpriv --reuid {NOBODY} --clear-groups head -c 100M /dev/zero > filling\n"
        "wc -c < filling; rm filling; cat cuda.shm; df --output=itotal . | tail -n 1\n"
    )
    size, content, files = with_own_mounts(inside).split()
    assert int(size) <= 64 << 20
    assert content == "mine"
    assert int(files) == 16 << 10


def test_logs_that_somebody_fills_take_their_own_room_alone(tmp_path: Path) -> None:
    inside = (
        f"mount -t tmpfs -o {_LOG_OPTIONS} test {tmp_path}; cd {tmp_path}; head -c 100M /dev/zero > server.log\n"
        f"wc -c < server.log; setpriv --reuid {NOBODY} --clear-groups ls {tmp_path}\n"
    )
    assert int(with_own_mounts(inside)) <= 16 << 20  # and the other user sees no name


def test_a_folder_of_somebody_else_s_is_not_used(node: Node) -> None:
    (spec,) = node.plan().daemons
    spec.pipe.mkdir(parents=True)
    os.chown(spec.pipe, NOBODY, NOBODY)
    with pytest.raises(MpsError, match=f"{spec.pipe} belongs to user {NOBODY}"):
        prepare_folders(spec)
    with pytest.raises(MpsError, match="belongs to user"):
        keep_own(spec)


@pytest.mark.parametrize("name", ["pipe", "log"])
def test_a_link_in_a_folder_s_place_is_not_followed(node: Node, secret: Path, name: str) -> None:
    (spec,) = node.plan().daemons
    spec.folder.mkdir(parents=True)
    (spec.folder / name).symlink_to(secret)
    before = seen(secret)
    with pytest.raises(MpsError, match=str(spec.folder / name)):
        prepare_folders(spec)
    assert seen(secret) == before


def test_a_root_that_others_can_write_in_or_own_is_refused(node: Node) -> None:
    (spec,) = node.plan().daemons
    node.root.mkdir()
    node.root.chmod(0o777)
    with pytest.raises(MpsError, match=f"others than root can write in {node.root}"):
        prepare_folders(spec)
    node.root.chmod(0o711)
    os.chown(node.root, NOBODY, NOBODY)
    with pytest.raises(MpsError, match=f"{node.root} belongs to user"):
        prepare_folders(spec)
    node.root.rmdir()
    node.root.symlink_to(node.root.parent / "elsewhere")
    (node.root.parent / "elsewhere").mkdir()
    os.chown(node.root, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(MpsError, match=f"{node.root} belongs to user"):
        prepare_folders(spec)


def test_a_second_name_of_another_file_in_the_logs_place_goes(node: Node, secret: Path) -> None:
    (spec,) = node.plan().daemons
    open_as_before(spec)
    os.link(secret / "control.log", spec.log / "control.log")
    (spec.log / "server.log").write_text("of an earlier control daemon\n")
    prepare_folders(spec)
    assert [path.name for path in spec.log.iterdir()] == ["server.log"]
    assert (secret / "control.log").read_bytes() == SECRET
