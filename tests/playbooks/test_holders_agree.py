"""The node daemon and the collection tell the same holders of a GPU: both are given the same processes."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.use.device_holders import read_device_holders
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugin.holdings.holders.scan import list_holders, read_dri_nodes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.playbooks.fakes import Machine

UID, OTHER_UID = "1f0c2d3e-4b5a-4c6d-8e7f-9a0b1c2d3e4f", "2f0c2d3e-4b5a-4c6d-8e7f-9a0b1c2d3e4f"
MIRROR_UID = "5a1c0e9b7d3f42688bb0c1d2e3f40516"
ID = "7d9f3c0a" * 8
Answer = tuple[int, str, tuple[str, ...], str | None, str | None, str | None]


def mapping(path: str) -> str:
    return f"7f00-7f01 rw-s 00000000 00:05 123                        {path}\n"


def add_process(root: Path, pid: str, *targets: str, **files: str) -> None:
    folder = root / f"proc/{pid}"
    (folder / "fd").mkdir(parents=True, exist_ok=True)
    for number, target in enumerate(targets):
        (folder / f"fd/{number}").unlink(missing_ok=True)
        (folder / f"fd/{number}").symlink_to(target)
    for name, text in {"maps": "", "cgroup": "0::/\n", "comm": "job\n", **files}.items():
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))


def add_graphics(root: Path) -> None:
    for name, vendor in (("card0", "0x1a03"), ("card1", "0x10de"), ("renderD128", "0x10de"), ("card1-DP-1", "0x10de")):
        (root / f"sys/class/drm/{name}/device").mkdir(parents=True)
        (root / f"sys/class/drm/{name}/device/vendor").write_text(f"{vendor}\n")


def of_the_daemon(root: Path) -> list[Answer]:
    listing = list_holders(root / "proc", dri_nodes=read_dri_nodes(root / "sys"))
    return [(one.pid, one.command, one.devices, one.unit, one.pod_uid, one.container_id) for one in listing.holders]


def of_the_collection(machine: Machine) -> list[Answer]:
    return [
        (one["pid"], one["command"], tuple(one["devices"]), one["unit"], one["pod_uid"], one["container_id"])
        for one in read_device_holders(machine.host)
    ]


HOLDING = {
    "a descriptor": (("/dev/nvidia0", "socket:[1]"), "", ["/dev/nvidia0"]),
    "a mapping without a descriptor": ((), mapping("/dev/nvidia-uvm"), ["/dev/nvidia-uvm"]),
    "both, told together": (("/dev/nvidiactl",), mapping("/dev/nvidia0"), ["/dev/nvidia0", "/dev/nvidiactl"]),
    "a node that is gone": (("/dev/nvidia0 (deleted)",), "", ["/dev/nvidia0"]),
    "a mapped node that is gone": ((), mapping("/dev/nvidia1 (deleted)"), ["/dev/nvidia1"]),
    "a graphics node of NVIDIA's": (("/dev/dri/renderD128",), "", ["/dev/dri/renderD128"]),
    "a mapped graphics node of NVIDIA's": ((), mapping("/dev/dri/card1"), ["/dev/dri/card1"]),
    "a graphics node of another vendor": (("/dev/dri/card0",), mapping("/dev/dri/card0"), None),
    "an output of a graphics card": (("/dev/dri/card1-DP-1",), "", None),
    "the library alone": ((), mapping("/usr/lib/libnvidia-ml.so.550.163.01"), None),
    "mappings of nothing": (("/dev/null",), "7f04-7f05 rw-p 00000000 00:00 0\n", None),
    "a node below /dev/nvidia-caps": (("/dev/nvidia-caps/nvidia-cap1",), "", ["/dev/nvidia-caps/nvidia-cap1"]),
    "a mapped file whose name has another line end": ((), mapping("/tmp/x\r7f-7f r 0 0 0 /dev/nvidia0"), None),
    "a mapped file whose name has a line end of Unicode": ((), mapping("/tmp/x\x85a b c d e /dev/nvidia0"), None),
    "many nodes": (tuple(f"/dev/nvidia{n}" for n in range(100, 200)), "", [f"/dev/nvidia{n}" for n in range(100, 164)]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("targets", "maps", "devices"), HOLDING.values(), ids=HOLDING)
def test_what_counts_as_holding_is_the_same(
    machine: Machine, targets: tuple[str, ...], maps: str, devices: list[str] | None
) -> None:
    add_graphics(machine.root)
    add_process(machine.root, "20", *targets, maps=maps)

    told = of_the_collection(machine)

    assert told == of_the_daemon(machine.root)
    assert [list(one[2]) for one in told] == ([devices] if devices else [])


CGROUPS = {
    "no unit": ("0::/\n", (None, None, None)),
    "a service": ("0::/system.slice/job.service\n", ("job.service", None, None)),
    "cgroupfs": (f"0::/kubepods/burstable/pod{UID}/{ID}\n", (None, UID, ID)),
    "systemd": (
        f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope\n",
        (f"cri-containerd-{ID}.scope", UID, ID),
    ),
    "two drivers": (f"0::/a/kubepods-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}\n", (None, UID, ID)),
    "a static pod": (f"0::/kubepods/pod{MIRROR_UID}/{ID}\n", (None, MIRROR_UID, ID)),
    "hierarchies of two pods": (f"2:a:/a/pod{UID}/{ID}\n1:b:/a/pod{OTHER_UID}/{ID}\n", (None, None, None)),
    "a pod in one hierarchy": (f"2:cpu:/{'0' * 64}\n1:b:/kubepods/pod{UID}/{ID}\n", (None, UID, ID)),
    "a longer number than a container's": (f"0::/docker/{ID}0\n", (None, None, None)),
    "a container in a container": (f"0::/kubepods/pod{UID}/{ID}/{'f' * 64}\n", (None, UID, ID)),
    "a pod that a user made up": (f"0::/user.slice/user@1000.service/pod{UID}/{ID}\n", ("user@1000.service", None, ID)),
    "a unit below a user's": (
        "0::/user.slice/user@1000.service/nvidia-persistenced.service\n", ("user@1000.service", None, None)
    ),
    "a group's name with another line end": (
        "0::/user.slice/user@1000.service/x\r0::nvidia-persistenced.service\n", ("user@1000.service", None, None)
    ),
    "a group's name that ends in white space": ("0::/system.slice/nvidia-persistenced.service \n", (None, None, None)),
}  # fmt: skip


@pytest.mark.parametrize(("cgroup", "place"), CGROUPS.values(), ids=CGROUPS)
def test_where_a_holder_belongs_is_the_same(
    machine: Machine, cgroup: str, place: tuple[str | None, str | None, str | None]
) -> None:
    add_process(machine.root, "20", "/dev/nvidia0", cgroup=cgroup)

    told = of_the_collection(machine)

    assert told == of_the_daemon(machine.root)
    assert [one[3:] for one in told] == [place]


def test_who_counts_as_a_process_is_the_same(machine: Machine) -> None:
    for pid in ("100", "20", "3"):
        add_process(machine.root, pid, "/dev/nvidia0", comm=f"\x1b[2Jjob{pid}\n")
    for name in ("self", "20²", "²", "\u0663", "3x"):
        add_process(machine.root, name, "/dev/nvidia0")
    (machine.root / "proc/100/maps").unlink()  # it ended meanwhile

    told = of_the_collection(machine)

    assert told == of_the_daemon(machine.root)
    assert [(one[0], one[1]) for one in told] == [(3, r"\x1b[2Jjob3"), (20, r"\x1b[2Jjob20")]


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
def test_a_node_elsewhere_counts_and_a_file_of_such_a_name_does_not(machine: Machine) -> None:
    elsewhere = machine.root / "srv/dev"
    elsewhere.mkdir(parents=True)
    os.mknod(elsewhere / "nvidia0", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    (elsewhere / "nvidia1").touch()
    add_process(machine.root, "20", str(elsewhere / "nvidia0"), str(elsewhere / "nvidia1"))

    told = of_the_collection(machine)

    assert told == of_the_daemon(machine.root)
    assert [one[2] for one in told] == [(str(elsewhere / "nvidia0"),)]


PARTS = st.sampled_from([
    "/dev/nvidia0", "/dev/dri/card1", "/dev/null", "/pod", UID, ID, "/x.service", "/user@1.service", " (deleted)",
    "0::", "\n", "\r", "\x85", "\u2028", "\udcff", " ", "/", "a", "7f-7f r 0 0 0 ",
])  # fmt: skip


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(maps=st.lists(PARTS, max_size=12), cgroup=st.lists(PARTS, max_size=12))
def test_whatever_the_kernel_says_of_a_process_both_tell_the_same(
    machine: Machine, maps: list[str], cgroup: list[str]
) -> None:
    add_process(machine.root, "20", "/dev/nvidia0", maps="".join(maps), cgroup="".join(cgroup), comm="".join(cgroup))
    assert of_the_collection(machine) == of_the_daemon(machine.root)
