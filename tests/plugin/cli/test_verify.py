"""`release`, a driver swap, `verify`: the verbs as they are shipped, against the lab's NVML and libcuda."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.nvml import install_cuda, models, state
from lab.nvml.machine import CUDA_HANGS, Check, FabricState
from tests.plugin.daemon.test_whole_daemon import Node, expect, failed_checks, load_module
from tests.plugin.driver.cuda_probe.test_runner import processes_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lab.nvml.machine import Machine

VERSION = "550.163.01"
CLUSTER = "6ba7b812-9dad-11d1-80b4-00c04fd430c8"
# The verb with another kernel log than this machine's.
VERB = """
import sys
from pathlib import Path
from plugin.cli.verify import verify_node
config, log, timeout_s = sys.argv[1:4]
sys.exit(verify_node(Path(config), "-", timeout_s=float(timeout_s), as_json=True, kernel_log=Path(log)))
"""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path, 2)
    install_cuda(tmp_path / "lib", VERSION)
    load_module(made, VERSION)
    (tmp_path / "sys/module/nvidia_uvm").mkdir()
    (tmp_path / "kmsg").write_text("6,1,1000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01\n")
    return made


def start(node: Node, timeout_s: float = 30, **keys: object) -> subprocess.Popen[str]:
    """Begin to verify."""
    folder = node.folder
    command = [sys.executable, "-c", VERB, str(folder / "node.json"), str(folder / "kmsg"), str(timeout_s)]
    pipe = subprocess.PIPE
    verb = subprocess.Popen(command, env=node.environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert verb.stdin is not None
    verb.stdin.write(expect(VERSION, **keys))
    verb.stdin.close()
    verb.stdin = None
    return verb


def verify(node: Node, timeout_s: float = 30, **keys: object) -> dict[str, str]:
    """Return the failed checks, by name."""
    return finish(start(node, timeout_s, **keys))


def finish(verb: subprocess.Popen[str]) -> dict[str, str]:
    said, complained = verb.communicate(timeout=60)
    return failed_checks(subprocess.CompletedProcess(verb.args, verb.returncode, said, complained))


def release(node: Node) -> None:
    assert node.run("release").returncode in {0, 3}


def name(node: Node, index: int) -> str:
    return f"gpu {index} ({node.uuids[index]})"


@pytest.mark.slow
def test_a_node_that_is_as_before_passes(node: Node) -> None:
    cut = models.with_mig(node.machine, 1, ["3g.20gb", "2g.10gb"])
    joined = cut.with_gpu(0, fabric_state=FabricState.COMPLETED, fabric_cluster=CLUSTER, fabric_clique=3)
    state.write(node.library, joined)
    release(node)
    remembered = json.loads((node.folder / "state/released.json").read_text())
    assert remembered["libcuda"] is True
    first, second = (remembered["states"][uuid] for uuid in node.uuids)
    assert first["fabric"] == {"state": "completed", "cluster": CLUSTER, "clique": 3}
    assert second["mig"] == [
        {"profile": "2g.10gb", "start": 4, "size": 2},
        {"profile": "3g.20gb", "start": 0, "size": 4},
    ]
    assert (first["linksActive"], first["eccEnabled"], first["uncorrected"], first["rowsFailed"]) == (
        12,
        True,
        0,
        False,
    )
    assert verify(node) == {}


CHANGES: list[tuple[str, Callable[[Machine], Machine], str]] = [
    (
        "mig",
        lambda machine: machine.with_gpu(0, migs=()),
        "mig is on, without a device, expected: 1g.5gb at 0:1; a reload or reboot forgets mig devices",
    ),
    (
        "memory",
        lambda machine: machine.with_gpu(0, ecc=replace(machine.gpus[0].ecc, enabled=False)),
        "ecc is off, and was not before: nvidia-smi -e 1",
    ),
    (
        "fabric",
        lambda machine: machine.with_gpu(0, fabric_clique=4),
        f"is in fabric {CLUSTER}.4, expected {CLUSTER}.3",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("check", "change", "message"), CHANGES, ids=[change[0] for change in CHANGES])
def test_what_the_swap_changed_is_named(
    node: Node, check: str, change: Callable[[Machine], Machine], message: str
) -> None:
    cut = models.with_mig(node.machine, 0, ["1g.5gb"])
    before = cut.with_gpu(0, fabric_state=FabricState.COMPLETED, fabric_cluster=CLUSTER, fabric_clique=3)
    state.write(node.library, before)
    release(node)
    state.write(node.library, change(before))
    failed = verify(node)
    assert list(failed) == [check]
    assert failed[check].startswith(f"{name(node, 0)}: {message}")


@pytest.mark.slow
def test_an_nvlink_that_did_not_come_back_is_named(node: Node) -> None:
    release(node)
    state.update(node.library, lambda machine: machine.with_gpu(1, links=machine.gpus[1].links[1:]))
    assert verify(node) == {"nvlink": f"{name(node, 1)}: 11 of 12 nvlinks are active"}


@pytest.mark.slow
def test_a_fabric_is_given_time_to_join(node: Node) -> None:
    joined = node.machine.with_gpu(0, fabric_state=FabricState.COMPLETED, fabric_cluster=CLUSTER, fabric_clique=3)
    state.write(node.library, joined)
    release(node)
    state.update(node.library, lambda machine: machine.with_gpu(0, fabric_state=FabricState.IN_PROGRESS))
    timer = threading.Timer(1.0, lambda: state.write(node.library, joined))
    timer.start()
    try:
        assert verify(node, timeout_s=60) == {}
    finally:
        timer.cancel()
    state.update(node.library, lambda machine: machine.with_gpu(0, fabric_state=FabricState.IN_PROGRESS))
    assert list(verify(node, timeout_s=3)) == ["fabric"]


@pytest.mark.slow
def test_a_gpu_that_hangs_is_named_with_the_error_it_had_meanwhile(node: Node) -> None:
    state.write(node.library, node.machine.with_failure("cuMemcpyDtoH", CUDA_HANGS, 1))
    with start(node, timeout_s=5) as verb:
        library = str(node.folder / "lib/libcuda.so")

        def is_trying() -> bool:
            """Whether a child of the verb has loaded the library."""
            children = subprocess.run(
                ["pgrep", "-P", str(verb.pid), "-f", "probe.py"], capture_output=True, text=True, check=False
            )
            return any(library in read(f"/proc/{pid}/maps") for pid in children.stdout.split())

        wait_until(is_trying, lambda: "nothing is tried")
        state.update(node.library, lambda machine: machine.with_xid(1, 79))
        failed = finish(verb)
    assert set(failed) == {"allocation", "xids"}
    assert failed["xids"] == f"{name(node, 1)}: xid 79, the gpu has fallen off the bus"
    assert failed["allocation"].startswith(f"{name(node, 1)}: hangs: memory could not be used within")


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # a file of /proc
            return file.read()
    except OSError:
        return ""


@pytest.mark.slow
def test_errors_since_the_driver_was_loaded_are_read_from_the_kernels_log(node: Node) -> None:
    with (node.folder / "kmsg").open("a") as log:
        log.write("4,2,2000,-;NVRM: Xid (PCI:0000:20:00): 119, pid=1, name=x, Timeout waiting for RPC from GSP\n")
        log.write("4,3,2001,-;NVRM: Xid (PCI:0000:10:00): 31, pid=1, name=x, MMU Fault\n")
    assert verify(node) == {
        "xids": f"{name(node, 1)}: xid 119, gpu firmware does not answer; "
        f"harmless: {name(node, 0)}: xid 31, memory page fault"
    }


@pytest.mark.slow
def test_a_module_that_cuda_needs_is_named(node: Node) -> None:
    machine = replace(node.machine, module=Check.CHECK, sys_root=str(node.folder / "sys"))
    state.write(node.library, machine)
    assert verify(node) == {}
    (node.folder / "sys/module/nvidia_uvm").rmdir()
    assert verify(node)["allocation"].endswith("; kernel module nvidia-uvm is not loaded: modprobe nvidia-uvm")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "failed"),
    [
        pytest.param({}, {"allocation"}, id="it was there before"),
        pytest.param({"allocation": False}, set(), id="nothing is to be allocated"),
    ],
)
def test_compute_libraries_that_the_swap_lost_are_a_failure(
    node: Node, keys: dict[str, object], failed: set[str]
) -> None:
    release(node)
    (node.folder / "lib/libcuda.so.1").unlink()
    (node.folder / f"lib/libcuda.so.{VERSION}").unlink()
    assert set(verify(node, **keys)) == failed


@pytest.mark.slow
def test_declared_mig_devices_stand_above_those_of_before(node: Node) -> None:
    release(node)
    state.update(node.library, lambda machine: models.with_mig(machine, 0, ["7g.40gb"]))
    assert verify(node, mig={node.uuids[0]: [{"profile": "7g.40gb"}]}) == {}
    assert set(verify(node)) == {"mig"}


@pytest.mark.slow
def test_a_release_with_a_driver_that_does_not_tell_how_gpus_are_set_up_is_a_release(node: Node) -> None:
    with node.running():
        wait_until((node.folder / "run/node.sock").exists, node.log)
        wait_until(lambda: "msg=driver" in node.log(), node.log)
        state.update(node.library, lambda machine: machine.with_failure("nvmlInit", 999))
        done = node.run("release", "--json")
    assert "the current mig, fabric and memory are not known: nvml does not answer: unknown error" in done.stdout
    assert json.loads((node.folder / "state/released.json").read_text())["states"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [0.05, 0.2, 0.4, 0.8])
def test_a_verb_that_is_killed_leaves_no_process_and_the_release_as_it_was(node: Node, delay_s: float) -> None:
    release(node)
    before = (node.folder / "state/released.json").read_bytes()
    state.write(node.library, node.machine.with_failure("cuMemcpyDtoH", CUDA_HANGS))
    with start(node) as verb:
        time.sleep(delay_s)
        verb.kill()
    wait_until(lambda: not processes_of(node.folder / "lib"), lambda: "a process is left")
    assert (node.folder / "state/released.json").read_bytes() == before
    state.write(node.library, node.machine)
    assert verify(node) == {}
