"""Root of a user namespace, all-powerful in it and nobody on the host, against what the hook shows and makes there."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.attack.conftest import FURTHER, furnish
from tests.runtime_hook.attack.hostile import LINKS
from tests.runtime_hook.containers import MULTIARCH, Container, host_mounts, run_hook, snapshot
from tests.runtime_hook.drivertree import MAJOR, VERSION, uuid
from tests.runtime_hook.engines.test_user_namespaces import RANGE, Ground, remove

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.functional

ADMIN = ["CAP_SYS_ADMIN", "CAP_CHOWN", "CAP_MKNOD", "CAP_SETUID", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SYS_CHROOT"]
EVERYTHING = [
    "NVIDIA_VISIBLE_DEVICES=0",
    "NVIDIA_GDS=enabled",
    "NVIDIA_MOFED=enabled",
    "NVIDIA_GDRCOPY=enabled",
    "NVIDIA_NVSWITCH=enabled",
    "NVIDIA_IMEX_CHANNELS=0,7",
]
MPS = "tmp/nvidia-mps"
MIG_CAPS = {
    "config": (1, 0o400),
    "monitor": (2, 0o444),
    "gpu0/gi1/access": (3, 0o444),
    "gpu0/gi1/ci0/access": (4, 0o444),
}
HAVE_ANOTHER = f"mknod /other c {MAJOR} 17; (: < /other) && echo opened; ls /dev/nvidia1 && echo shown; true"


@pytest.fixture
def node(pristine_root: Path, objects: Path) -> Iterator[Ground]:
    """Make a host that has everything a container can ask for, its control daemon of MPS as NVIDIA leaves it."""
    path = Path(tempfile.mkdtemp(prefix="grapnel-test-"))
    path.chmod(0o755)
    made = Ground(path, pristine_root, objects)
    furnish(made.driver)
    for name in FURTHER:
        (path / "host/dev" / name).chmod(0o666)
    folder = path / "host" / MPS
    folder.mkdir(parents=True)
    folder.chmod(0o1777)
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(folder / "control"))
    yield made
    remove(path)


def start(node: Ground, script: str, *environment: str, **changes: object) -> subprocess.CompletedProcess[str]:
    """Start a container whose root has every power in its user namespace."""
    made = node.container(RANGE, 65536)
    made.capabilities = ADMIN
    made.environment = [*environment] or EVERYTHING
    made.command = ["/bin/busybox", "sh", "-c", script]
    made.changes.update(changes)
    return made.run()


def settings(node: Ground, **more: object) -> None:
    found = json.loads((node.path / "hook.json").read_text())
    (node.path / "hook.json").write_text(json.dumps({**found, **more}))


def test_it_makes_no_link_where_roots_control_daemon_follows_one(node: Ground) -> None:
    """The folder of MPS was for reading by its mount alone, which root of a user namespace made writable again."""
    done = start(node, f"/bin/busybox mount -o remount,bind,rw /{MPS}; ln -s /etc/shadow /{MPS}/log; ls /dev/nvidia0")
    assert done.stdout == "/dev/nvidia0\n", done.stderr
    assert [path.name for path in (node.path / "host" / MPS).iterdir()] == ["control"]


def test_it_writes_to_nothing_that_it_is_shown(node: Ground) -> None:
    folder = f"/{MULTIARCH}"
    shown = [
        f"{folder}/libcuda.so.{VERSION}",
        "/usr/bin/nvidia-smi",
        "/etc/cufile.json",
        "/run/udev/data",
        "/run/udev/data/c4:16",
        *("/dev/nvidia0", "/dev/nvidiactl", *(f"/dev/{name}" for name in FURTHER)),
    ]
    words = " ".join(shown)
    script = f"""
        for each in {words}; do
            ls -d $each >/dev/null || echo $each is missing
            busybox mount -o remount,bind,rw $each 2>/dev/null
            busybox chmod 777 $each && echo $each has another mode
            busybox chown 0 $each && echo $each has another owner
            busybox rm -rf $each 2>/dev/null && echo $each is gone
        done
        for each in {folder}/libcuda.so.{VERSION} /usr/bin/nvidia-smi /etc/cufile.json /run/udev/data/x; do
            (echo evil >> $each) && echo $each is written
        done; true
    """
    before, mounts = snapshot(node.driver.root), host_mounts()
    done = start(node, script.replace("busybox", "/bin/busybox"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert snapshot(node.driver.root) == before
    assert host_mounts() == mounts


def test_what_is_the_hosts_is_nobodys_inside_and_what_was_made_is_roots(node: Ground) -> None:
    places = f"/{MULTIARCH}/libcuda.so.1 /dev/infiniband /dev/nvidia-caps-imex-channels /run/udev /etc/ld.so.cache"
    shown = f"/{MULTIARCH}/libcuda.so.{VERSION} /dev/nvidia0 /dev/gdrdrv /run/udev/data /etc/cufile.json"
    done = start(node, f"/bin/busybox stat -c %u:%g {places}; echo; /bin/busybox stat -c %u:%g {shown}")
    made, of_host = done.stdout.split("\n\n")
    assert (set(made.split()), set(of_host.split())) == ({"0:0"}, {"65534:65534"}), done.stderr


def test_it_has_no_device_but_those_that_it_was_given(node: Ground) -> None:
    done = start(node, HAVE_ANOTHER)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_it_is_not_privileged_where_only_privileged_containers_may_ask(node: Ground) -> None:
    """CAP_SYS_ADMIN counted in whichever user namespace, and where everybody may have one."""
    settings(node, acceptEnvvarUnprivileged=False)
    done = start(node, "ls /dev")
    assert done.returncode == 0, done.stderr
    assert "nvidia" not in done.stdout


@pytest.fixture
def cut(node: Ground) -> Ground:
    """Cut GPU 0 into a MIG device, its capability nodes as open as the driver's."""
    host = node.path / "host"
    (host / "proc/driver/nvidia-caps").mkdir(parents=True)
    lines = [f"{name} {number}\n" for name, (number, _) in MIG_CAPS.items()]
    (host / "proc/driver/nvidia-caps/mig-minors").write_text("".join(lines))
    (host / "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0").mkdir(parents=True)
    for number, mode in MIG_CAPS.values():
        node.driver.node(f"nvidia-caps/nvidia-cap{number}", 40 + number)
        (host / f"dev/nvidia-caps/nvidia-cap{number}").chmod(mode)
    return node


@pytest.mark.parametrize("variable", ["NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"])
@pytest.mark.parametrize("mode", [0o444, 0o666])
def test_it_does_not_administer_mig(cut: Ground, variable: str, mode: int) -> None:
    """Where somebody has opened the nodes for all, it did."""
    for number in (1, 2):
        (cut.path / f"host/dev/nvidia-caps/nvidia-cap{number}").chmod(mode)
    done = start(cut, "true", "NVIDIA_VISIBLE_DEVICES=all", f"{variable}=all")
    assert done.returncode != 0
    assert f"{variable} is for privileged containers" in done.stderr


def test_a_mig_device_is_given_with_nodes_that_are_for_reading(cut: Ground) -> None:
    """Every one was refused: the driver opens its capability nodes for reading alone."""
    place = f"MIG-{uuid(0)}/1/0"
    done = start(cut, "cd /dev/nvidia-caps && ls && (: < nvidia-cap3) && echo open", f"NVIDIA_VISIBLE_DEVICES={place}")
    assert (done.returncode, done.stdout.split()) == (0, ["nvidia-cap3", "nvidia-cap4", "open"]), done.stderr


def test_a_user_in_a_privileged_container_does_not_cut_gpus_anew(cut: Ground) -> None:
    """The node was made for everybody; the driver's own is root's."""
    nodes = [f"/dev/nvidia-caps/nvidia-cap{number}" for number, _ in MIG_CAPS.values()]
    made = Container(cut.path / "bundle", cut.root, ["/bin/busybox", "stat", "-c", "%a %u", *nodes])
    made.hook_arguments = ["--config", str(cut.path / "hook.json"), "--root", str(cut.path / "host")]
    made.capabilities = ADMIN
    made.environment = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_MIG_CONFIG_DEVICES=all", "NVIDIA_MIG_MONITOR_DEVICES=all"]
    done = made.run()
    assert done.stdout.splitlines() == ["400 0", "444 0", "444 0", "444 0"], done.stderr


@pytest.mark.parametrize(
    ("maps", "owner"),
    [
        pytest.param([(0, RANGE, 1), (1, RANGE + 70_000, 100)], RANGE, id="root apart from all others"),
        pytest.param([(1, 300_000, 10), (0, RANGE, 1)], RANGE, id="root behind others"),
        pytest.param([(0, RANGE, 1), (1, 0, 1)], RANGE, id="the host's root is an ordinary user inside"),
    ],
)
def test_with_several_maps_what_is_made_is_its_roots(
    node: Ground, maps: list[tuple[int, int, int]], owner: int
) -> None:
    before = set(snapshot(node.root))
    made = node.container(RANGE, 65536)
    entries = [dict(zip(("containerID", "hostID", "size"), each, strict=True)) for each in maps]
    made.changes["linux"] |= {"uidMappings": entries, "gidMappings": entries}
    done = made.run()
    assert done.returncode == 0, done.stderr
    new = [Path(path) for path in set(snapshot(node.root)) - before]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in new} == {(owner, owner)}


@contextmanager
def process_with_users(maps: str) -> Iterator[int]:
    """A process in namespaces of users and mounts of its own, with a map that root wrote."""
    argv = ["unshare", "--user", "--mount", "--propagation", "unchanged", "/bin/busybox", "cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.read(1)
        for kind in ("uid", "gid"):
            Path(f"/proc/{process.pid}/{kind}_map").write_text(maps)
        yield process.pid
        process.stdin.close()


def test_a_map_that_leaves_out_root_gives_nobody_inside_anything_of_the_hosts(node: Ground) -> None:
    """There is no root whose the files could be: they are the host's, and nobody inside owns them."""
    (node.path / "config.json").write_text(
        json.dumps({"root": {"path": str(node.root)}, "process": {"env": EVERYTHING}})
    )
    before, mounts = set(snapshot(node.root)), host_mounts()
    subprocess.run(["mount", "--bind", str(node.root), str(node.root)], check=True)
    subprocess.run(["mount", "--make-private", str(node.root)], check=True)
    try:
        with process_with_users("1 300000 10\n") as pid:
            state = json.dumps({"id": "c1", "pid": pid, "bundle": str(node.path)}).encode()
            arguments = ["--config", str(node.path / "hook.json"), "--root", str(node.path / "host")]
            done = run_hook(["prestart", *arguments], state)
    finally:
        subprocess.run(["umount", str(node.root)], check=True)
    new = [Path(path) for path in set(snapshot(node.root)) - before]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in new} == {(0, 0)}, done.stderr
    assert not [path for path in new if path.lstat().st_mode & (stat.S_ISUID | stat.S_IWOTH) and not path.is_symlink()]
    assert host_mounts() == mounts


@pytest.mark.parametrize("mapping", [[(0, 0, 1)], [(0, 0, 65536)], []])
def test_a_configuration_that_calls_its_root_the_hosts_is_not_believed(
    node: Ground, mapping: list[tuple[int, int, int]]
) -> None:
    """So Podman has it of every namespace that a container joins, and a rule for root allowed that container GPUs."""
    settings(node, rules=[{"decision": "allow", "users": [0]}])
    entries = [dict(zip(("containerID", "hostID", "size"), each, strict=True)) for each in mapping]
    config = {
        "root": {"path": str(node.root)},
        "process": {"env": EVERYTHING, "user": {"uid": 0}},
        "linux": {"namespaces": [{"type": "user", "path": "/proc/1/ns/user"}], "uidMappings": entries},
    }
    (node.path / "config.json").write_text(json.dumps(config))
    before = snapshot(node.root)
    with process_with_users(f"0 {RANGE} 65536\n") as pid:
        state = json.dumps({"id": "c1", "pid": pid, "bundle": str(node.path)}).encode()
        arguments = ["--config", str(node.path / "hook.json"), "--root", str(node.path / "host")]
        done = run_hook(["prestart", *arguments], state)
    assert done.returncode == 0, done.stderr
    assert snapshot(node.root) == before


@pytest.mark.parametrize("target", ["run", "run/udev", "etc", "usr/lib", "usr/bin"])
@pytest.mark.parametrize("kind", ["an absolute link", "a climbing link", "a link through proc 1"])
def test_no_link_of_its_image_leads_to_the_host(node: Ground, target: str, kind: str) -> None:
    victim = node.path / "victim"
    (victim / "data").mkdir(parents=True)
    for path in (victim, victim / "data"):
        os.chown(path, RANGE, RANGE)  # even where its root could write by itself
    place = node.root / target
    if place.exists():
        place.rename(place.with_name(f"{place.name}.aside"))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(LINKS[kind].format(victim=victim))
    before, mounts = snapshot(victim), host_mounts()
    start(node, "true")
    assert snapshot(victim) == before
    assert host_mounts() == mounts


@pytest.mark.parametrize(
    "place", ["/dev/nvidia-caps-imex-channels", "/dev/infiniband", "/run/udev", "/run/udev/data", f"/{MULTIARCH}"]
)
def test_nothing_is_made_in_a_volume_that_lies_over_a_target(node: Ground, place: str) -> None:
    volume = node.path / "volume"
    volume.mkdir()
    os.chown(volume, RANGE, RANGE)
    plain = Container(node.path, node.root, []).config()["mounts"]
    mount = {"destination": place, "type": "bind", "source": str(volume), "options": ["rbind", "rw"]}
    start(node, "true", mounts=[*plain, mount])
    assert list(volume.iterdir()) == []


def test_a_node_of_the_drivers_root_that_became_another_device_is_not_shown(node: Ground) -> None:
    """Between the search for the driver and the start, or by whoever writes that root."""
    assert start(node, "true").returncode == 0
    channel = node.path / "host/dev/nvidia-caps-imex-channels/channel7"
    channel.unlink()
    os.mknod(channel, stat.S_IFCHR | 0o666, os.makedev(1, 1))
    done = start(node, "true")
    assert done.returncode != 0
    assert "not the device 4:7" in done.stderr or "channel 7 does not exist" in done.stderr
