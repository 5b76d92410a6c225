"""Containers that have a GPU's device nodes and no library of the driver: nobody told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugin.cli.explain import _missing_libraries
from plugin.holdings.holders.libraries import without_libraries
from plugin.kubelet.pod_resources.attribution import PodContainer

if TYPE_CHECKING:
    from pathlib import Path

UID = "0f3b7a52-9d1e-4c60-8a77-3f1d5e6b9a10"
MAIN, SANDBOX = "4f1c" * 16, "0a0b" * 16
ROOT = "1 0 0:50 / / rw - overlay overlay rw\n"
LIBRARY = (
    "2 1 8:1 /usr/lib/libcuda.so.535.261.03 /usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03 ro - ext4 /dev/sda rw\n"
)
NODE = "3 1 0:5 /nvidia0 /dev/nvidia0 rw - devtmpfs udev rw\n"
TRAIN = PodContainer("shop", "train", "main")


class Host:
    """A /proc and a /var/log with one pod of one container, and the container of the pod itself."""

    def __init__(self, folder: Path, mountinfo: str | None) -> None:
        self.proc, self.logs = folder / "proc", folder / "log"
        log = self.logs / "pods" / f"shop_train_{UID}" / "main"
        log.mkdir(parents=True)
        (self.logs / "containers").mkdir()
        (self.logs / "containers" / f"train_shop_main-{MAIN}.log").symlink_to(log / "0.log")
        self._add(10, SANDBOX, ROOT)
        self._add(11, MAIN, mountinfo)
        (self.proc / "sys").mkdir()
        (self.proc / "self" / "ns").mkdir(parents=True)
        (self.proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")

    def _add(self, pid: int, container: str, mountinfo: str | None) -> None:
        (self.proc / str(pid)).mkdir(parents=True)
        (self.proc / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{UID}/{container}\n")
        if mountinfo is not None:
            (self.proc / str(pid) / "mountinfo").write_text(mountinfo)


@pytest.mark.parametrize(
    ("mountinfo", "expected"),
    [
        pytest.param(ROOT + NODE, (TRAIN,), id="device nodes alone"),
        pytest.param(ROOT + NODE + LIBRARY, (), id="libraries"),
        pytest.param(None, (), id="what cannot be read"),
        pytest.param("nonsense\n" + ROOT, (TRAIN,), id="a line of another form"),
    ],
)
def test_a_container_is_told_by_its_mounts(
    mountinfo: str | None, expected: tuple[PodContainer, ...], tmp_path: Path
) -> None:
    host = Host(tmp_path, mountinfo)
    assert without_libraries(host.proc, host.logs, [TRAIN]) == expected
    assert without_libraries(host.proc, host.logs, [PodContainer("shop", "other", "main")]) == ()


def explanation(**more: object) -> dict[str, Any]:
    pod = {"namespace": "shop", "pod": "train", "container": "main", "gone": None} | more
    return {"allocations": [{"devices": ["GPU-1"], "pods": [pod]}], "problems": []}


def test_explain_says_what_such_a_pod_lacks(tmp_path: Path) -> None:
    host = Host(tmp_path, ROOT + NODE)
    (told,) = _missing_libraries(explanation(), host.proc, host.logs)
    assert told.startswith("pod shop/train, container main: it has the device nodes and none of the driver's libraries")
    assert "RuntimeClass" in told
    assert _missing_libraries(explanation(gone="2026-01-01T00:00:00Z"), host.proc, host.logs) == []


def test_nothing_is_told_from_another_process_namespace(tmp_path: Path) -> None:
    host = Host(tmp_path, ROOT + NODE)
    link = host.proc / "self" / "ns" / "pid"
    link.unlink()
    link.symlink_to("pid:[1]")
    assert _missing_libraries(explanation(), host.proc, host.logs) == []
