"""Discovery, freshness and storage of the inventory, on fake trees with real device nodes (needs root)."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from runtime_hook.base.errors import InjectionError, InventoryError
from runtime_hook.host.discovery import discover
from runtime_hook.host.fingerprint import is_fresh, module_version
from runtime_hook.host.hosttree import HostTree
from runtime_hook.host.inventory import render_inventory
from runtime_hook.host.store import current_inventory, read_inventory, refresh, write_inventory
from runtime_hook.request.grant import check_versions
from tests.runtime_hook.containers import HOOK, host_mounts, run_hook
from tests.runtime_hook.drivertree import MAJOR, MULTIARCH, VERSION, DriverTree, uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.runtime_hook.containers import Container

pytestmark = pytest.mark.functional


@pytest.mark.parametrize("layout", ["debian", "multiarch", "lib64"])
@pytest.mark.parametrize("with_cache", [True, False])
def test_every_layout_is_discovered(tmp_path: Path, objects: Path, layout: str, with_cache: bool) -> None:  # noqa: FBT001 - a table's column
    driver = DriverTree(tmp_path / "host", objects, layout=layout).build()
    if with_cache:
        (driver.root / "etc").mkdir(exist_ok=True)
        (driver.root / "etc/ld.so.conf").write_text(f"/{MULTIARCH}\n/usr/lib64\n")
        subprocess.run(["/sbin/ldconfig", "-r", str(driver.root)], check=True, capture_output=True)
    found = discover(HostTree(str(driver.root)))
    folder = "/" + str(driver.folder.relative_to(driver.root))
    assert found.driver_version == VERSION
    assert {library.path for library in found.libraries} == {
        f"{folder}/{stem}.so.{VERSION}"
        for stem in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-gpucomp")
    }
    links = {library.soname: library.links for library in found.libraries}
    assert links["libcuda.so.1"] == ("libcuda.so",)
    assert links["libnvidia-ml.so.1"] == ()
    assert [(gpu.uuid, gpu.path, gpu.major, gpu.minor) for gpu in found.gpus] == [
        (uuid(0), "/dev/nvidia0", MAJOR, 16),
        (uuid(1), "/dev/nvidia1", MAJOR, 17),
    ]
    assert {device.kind for device in found.control} == {"ctl", "uvm", "uvm-tools"}
    assert [(binary.name, binary.path) for binary in found.binaries] == [
        ("nvidia-smi", "/usr/lib/nvidia/current/nvidia-smi")
    ]


def change_module(driver: DriverTree) -> None:
    driver.set_module("570.1")


def upgrade(driver: DriverTree) -> None:
    driver.add_libraries("560.10.03")


def remove_node(driver: DriverTree) -> None:
    (driver.root / "dev/nvidia1").unlink()


def renumber_node(driver: DriverTree) -> None:
    (driver.root / "dev/nvidia-uvm").unlink()
    driver.node("nvidia-uvm", 61)


def plug_gpu(driver: DriverTree) -> None:
    driver.add_gpu(2)


@pytest.mark.parametrize("change", [change_module, upgrade, remove_node, renumber_node, plug_gpu])
def test_a_change_behind_the_back_is_noticed(driver: DriverTree, change: Callable[[DriverTree], None]) -> None:
    tree = HostTree(str(driver.root))
    before = discover(tree)
    assert is_fresh(before, tree)
    change(driver)
    assert not is_fresh(before, tree)
    assert is_fresh(discover(tree), tree)


def test_a_stale_inventory_is_replaced_and_a_fresh_one_kept(driver: DriverTree, tmp_path: Path) -> None:
    path, tree = tmp_path / "run/inventory.json", HostTree(str(driver.root))
    current_inventory(str(path), tree, write=True)
    first = path.stat()
    current_inventory(str(path), tree, write=True)
    assert path.stat().st_ino == first.st_ino
    plug_gpu(driver)
    assert len(current_inventory(str(path), tree, write=True).gpus) == 3
    assert len(json.loads(path.read_text())["devices"]["gpus"]) == 3
    assert [entry.name for entry in path.parent.iterdir()] == ["inventory.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "x"}'])
def test_a_damaged_inventory_counts_as_missing(driver: DriverTree, tmp_path: Path, content: str) -> None:
    path = tmp_path / "inventory.json"
    path.write_text(content)
    tree = HostTree(str(driver.root))
    assert current_inventory(str(path), tree, write=True).driver_version == VERSION
    assert read_inventory(str(path), trusted=True) == discover(tree, str(tmp_path / "nvml.json"))


def test_an_inventory_that_others_could_have_written_is_not_believed(driver: DriverTree, tmp_path: Path) -> None:
    path, tree = tmp_path / "inventory.json", HostTree(str(driver.root))
    forged = render_inventory(discover(tree))
    forged["driver_version"] = "666.0"
    path.write_text(json.dumps(forged))
    path.chmod(0o666)
    assert current_inventory(str(path), tree, write=False).driver_version == VERSION


def test_explaining_never_writes(driver: DriverTree, tmp_path: Path) -> None:
    path = tmp_path / "run/inventory.json"
    current_inventory(str(path), HostTree(str(driver.root)), write=False)
    assert not path.parent.exists()


def test_an_inventory_that_cannot_be_stored_is_an_error_only_for_refresh(driver: DriverTree) -> None:
    tree = HostTree(str(driver.root))
    assert current_inventory("/proc/nowhere/inventory.json", tree, write=True).driver_version == VERSION
    with pytest.raises(InventoryError, match="cannot write"):
        write_inventory(discover(tree), "/proc/nowhere/inventory.json")


def test_a_host_without_driver_loses_its_old_inventory(driver: DriverTree, tmp_path: Path) -> None:
    path = tmp_path / "inventory.json"
    refresh(str(path), HostTree(str(driver.root)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InventoryError, match="no NVIDIA driver libraries"):
        refresh(str(path), HostTree(str(tmp_path / "empty")))
    assert not path.exists()


def test_two_versions_are_told_apart(driver: DriverTree) -> None:
    tree = HostTree(str(driver.root))
    check_versions(discover(tree))
    driver.set_module("535.309.01")
    with pytest.raises(InventoryError, match=r"kernel module nvidia is 535\.309\.01, the libraries are 550\.163\.01"):
        check_versions(discover(tree))
    driver.set_module("")
    check_versions(discover(tree))


@pytest.mark.parametrize(
    "text",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build\n",
    ],
)
def test_the_module_version_is_read_from_proc_too(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "proc/driver/nvidia"
    folder.mkdir(parents=True)
    (folder / "version").write_text(text)
    assert module_version(HostTree(str(tmp_path))) == "550.163.01"


def test_refresh_and_explain_on_the_command_line(
    driver: DriverTree, container: Callable[..., Container], tmp_path: Path
) -> None:
    root = ["--root", str(driver.root)]
    done = run_hook(["refresh", *root])
    path = driver.root / "run/grapnel/inventory.json"
    assert done.stdout.decode() == f"{path}: driver {VERSION}, 2 GPUs, 4 libraries, 1 programs\n", done.stderr
    given = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia1", 17)]
    made = container(["true"], devices=given).write()
    options = ["--inventory", str(path), "--config", str(tmp_path / "hook.json"), *root]
    before = host_mounts()
    answers = [run_hook(["explain", str(target), *options]) for target in (made, made / "config.json")]
    explained = json.loads(answers[0].stdout)
    assert answers[0].stdout == answers[1].stdout
    assert (explained["entitled"], explained["source"]) == (True, "devices")
    assert explained["devices"] == [{"uuid": uuid(1), "path": "/dev/nvidia1"}]
    assert explained["capabilities"] == ["compute", "utility"]
    assert explained["operations"][-1] == "merge 5 names into /etc/ld.so.cache"
    assert host_mounts() == before


def test_explain_says_why_a_container_is_refused(container: Callable[..., Container], tmp_path: Path) -> None:
    options = ["--config", str(tmp_path / "hook.json"), "--root", str(tmp_path / "host")]
    made = container(["true"], annotations={"grapnel.dev/allocation": "GPU-gone"}).write()
    explained = json.loads(run_hook(["explain", str(made), *options]).stdout)
    assert (explained["entitled"], explained["refused"][:20]) == (False, "unknown GPU GPU-gone")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(change_module, "kernel module nvidia is 570.1", id="a half-finished driver change"),
        pytest.param(remove_node, "unknown GPU", id="a GPU whose node is gone"),
    ],
)
def test_an_entitled_container_is_refused_by_name(
    container: Callable[..., Container], driver: DriverTree, change: Callable[[DriverTree], None], words: str
) -> None:
    change(driver)
    done = container(["/bin/busybox", "true"], annotations={"grapnel.dev/allocation": uuid(1)}).run()
    assert done.returncode != 0
    assert words in done.stderr


def test_the_kernel_side_refuses_the_hosts_own_namespace() -> None:
    script = (
        "import sys, os; sys.path.insert(0, sys.argv[1])\n"
        "from runtime_hook.container.kernel import KernelSyscalls\n"
        "KernelSyscalls(os.getpid(), '/')\n"
    )
    argv = ["/usr/bin/python3", "-IS", "-c", script, str(HOOK.parent.parent)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert f"{InjectionError.__name__}: the container has no mount namespace of its own" in done.stderr


def test_the_kernel_side_refuses_the_host_as_root() -> None:
    script = (
        "import sys, os; sys.path.insert(0, sys.argv[1])\n"
        "from runtime_hook.container.kernel import KernelSyscalls\n"
        "KernelSyscalls(int(sys.argv[2]), '/').enter()\n"
    )
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo ready; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        argv = ["/usr/bin/python3", "-IS", "-c", script, str(HOOK.parent.parent), str(other.pid)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        other.communicate(b"\n")
    assert "container root / is the host's" in done.stderr
