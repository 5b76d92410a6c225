"""Pods with ``hostUsers: false``: a real containerd and a real runc make the user namespace, as they do for a kubelet.

Half of all ranges that a kubelet gives out begin at 2^31 or above.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import golang, images
from lab.cri.config import ContainerSpec, Device, container_config
from lab.cri.engine import Handler, containerd
from provision.planning.engines.containerd.base_spec import base_spec
from tests.runtime_hook.containers import HOOK, MULTIARCH
from tests.runtime_hook.drivertree import MAJOR, DriverTree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cri import Cri

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd and runc need root"),
]

NODES = {"nvidiactl": 62, "nvidia-uvm": 60, "nvidia0": 16}
LOOK = f"cut -c-22 /proc/self/uid_map; stat -c %u /{MULTIARCH}/libcuda.so.1; (: <> $0/nvidia0) && echo open"


@pytest.fixture(scope="module")
def devices() -> Iterator[list[Device]]:
    """Make stand-ins for the driver's nodes on the host: for users of its own runc binds the host's by their path."""
    folder = Path(f"/dev/grapnel-test-{os.getpid()}")
    folder.mkdir()
    for name, minor in NODES.items():
        os.mknod(folder / name, stat.S_IFCHR, os.makedev(MAJOR, minor))
        (folder / name).chmod(0o666)
    yield [Device(str(folder / name)) for name in NODES]
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Make a folder that users of other namespaces can pass, as an engine's are: pytest's are root's alone."""
    with tempfile.TemporaryDirectory(prefix="grapnel-test-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(scope="module")
def cri(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cri]:
    """A containerd whose handler starts the hook, on a host with a driver."""
    DriverTree(place / "host", tmp_path_factory.mktemp("objects")).build()
    (place / "hook.json").write_text(json.dumps({"inventory": str(place / "inventory.json"), "log": "none"}))
    spec = base_spec(hook_timeout_s=30)
    options = ["--root", str(place / "host"), "--config", str(place / "hook.json")]
    spec["hooks"]["prestart"][0] |= {"path": str(HOOK), "args": ["grapnel-hook", "prestart", *options]}
    (place / "base-spec.json").write_text(json.dumps(spec))
    runc = golang.runc() / "runc"
    handlers = {"nvidia": Handler(base_runtime_spec=place / "base-spec.json", runc=runc)}
    with (
        containerd(place, golang.containerd(), handlers, version=3, has_network=True) as engine,
        engine.cri(timeout_s=60) as cri,
    ):
        for name in ("pause", "gpu-shell"):
            engine.import_image(images.archive(name))
        yield cri


@pytest.mark.parametrize(
    "first_id",
    [
        pytest.param(65536, id="the first range that a kubelet gives out"),
        pytest.param(2**31 - 65536, id="the last range of positive numbers"),
        pytest.param(2**31, id="the first range that is negative as a C int"),
        pytest.param(2_193_096_704, id="one above"),
    ],
)
def test_a_pod_with_users_of_its_own_gets_its_gpu(cri: Cri, devices: list[Device], first_id: int) -> None:
    pod = cri.run_pod("users", handler="nvidia", host_network=False, first_id=first_id)
    folder = str(Path(devices[0].host_path).parent)
    try:
        spec = ContainerSpec(
            images.reference("gpu-shell"), ["sh", "-c", LOOK, folder], devices=devices, first_id=first_id
        )
        done = cri.run_config(pod, container_config(spec))
    finally:
        cri.remove_pod(pod)
    assert [line.split() for line in done.log.splitlines()] == [["0", str(first_id)], ["0"], ["open"]]
