"""A node's inventory for tables: three GPUs, the last divided into MIG devices, and every kind of control node."""

from __future__ import annotations

from typing import Any

from runtime_hook.host.inventory import (
    ControlDevice,
    Fingerprint,
    Gpu,
    ImexChannels,
    Inventory,
    Library,
    MigDevice,
    Node,
)
from runtime_hook.inputs.bundle import ContainerConfig, parse_container
from runtime_hook.loader.layout import choose_layout
from runtime_hook.loader.platforms import PLATFORMS

CAPS_MAJOR = 237
LAYOUT = choose_layout(PLATFORMS["x86_64"], lambda path: path == "/etc/debian_version")


def uuid(index: int) -> str:
    return f"GPU-0000000{index}-aaaa-bbbb-cccc-00000000000{index}"


def gpu(index: int, brand: str = "Tesla", compute_capability: str = "8.0") -> Gpu:
    path, address = f"/dev/nvidia{index}", f"0000:1{index}:0{index}.0"
    return Gpu(index, uuid(index), index, address, path, 195, index, "", brand, compute_capability)


def cap(minor: int) -> Node:
    return Node(f"/dev/nvidia-caps/nvidia-cap{minor}", CAPS_MAJOR, minor)


GPUS = tuple(gpu(index) for index in range(3))
# Two compute instances share GPU instance 1, whose capability node is 10.
MIG = (
    MigDevice(uuid(2), 1, 0, (cap(10), cap(11)), "MIG-00000000-1111-2222-3333-444444444444", 0),
    MigDevice(uuid(2), 1, 1, (cap(10), cap(12)), "MIG-00000001-1111-2222-3333-444444444444", 1),
    MigDevice(uuid(2), 5, 0, (cap(20), cap(21)), "", -1),
)
CONTROL = (
    ControlDevice("/dev/nvidiactl", 195, 255, "ctl"),
    ControlDevice("/dev/nvidia-uvm", 510, 0, "uvm"),
    ControlDevice("/dev/nvidia-caps/nvidia-cap1", CAPS_MAJOR, 1, "mig-config"),
    ControlDevice("/dev/nvidia-caps/nvidia-cap2", CAPS_MAJOR, 2, "mig-monitor"),
    ControlDevice("/dev/nvidia-fs0", 241, 0, "nvidia-fs"),
    ControlDevice("/dev/gdrdrv", 242, 0, "gdrdrv"),
)
IMEX = ImexChannels(240, ((0, 0), (7, 7)))
LIBRARIES = (
    Library("/usr/lib/libcuda.so.550.163.01", "libcuda.so.1", (), "compute", 64),
    Library("/usr/lib/libnvidia-ml.so.550.163.01", "libnvidia-ml.so.1", (), "utility", 64),
)
FURTHER = (*(cap(number) for number in (10, 11, 12, 20, 21)), IMEX.node(0), IMEX.node(7))
NUMBERS = {node.path: (node.major, node.minor) for node in (*GPUS, *CONTROL, *FURTHER)}


def inventory(**changes: Any) -> Inventory:
    fields: dict[str, Any] = {
        "driver_version": "550.163.01",
        "cuda_version": "12.4",
        "control": CONTROL,
        "gpus": GPUS,
        "mig": MIG,
        "imex": IMEX,
        "libraries": LIBRARIES,
        "binaries": (),
        "fingerprint": Fingerprint("550.163.01", (), (), ()),
    }
    return Inventory(**{**fields, **changes})


def container(*env: str, **parts: Any) -> ContainerConfig:
    """Parse a ``config.json``; ``nodes`` are device nodes of the inventory by path, ``requests`` NVIDIA's mounts.

    ``own_users`` is a user namespace.
    """
    folder = "/var/run/nvidia-container-devices"
    mounts = [{"source": "/dev/null", "destination": f"{folder}/{name}"} for name in parts.pop("requests", ())]
    bounding = ["CAP_SYS_ADMIN"] if parts.pop("privileged", False) else ["CAP_CHOWN"]
    nodes = [
        {"path": path, "type": "c", "major": NUMBERS[path][0], "minor": NUMBERS[path][1]}
        for path in parts.pop("nodes", ())
    ]
    process = {"env": list(env), "capabilities": {"bounding": bounding}, "user": {"uid": parts.pop("uid", 0)}}
    kinds = ["mount", "user"] if parts.pop("own_users", False) else ["mount"]
    linux = {"devices": nodes, "namespaces": [{"type": kind} for kind in kinds], **parts.pop("linux", {})}
    engine_user = parts.pop("engine_user", None)
    content = {"process": process, "mounts": mounts, "linux": linux, **parts}
    return parse_container(content, "/bundle", engine_user=engine_user)
