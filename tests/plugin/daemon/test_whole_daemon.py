"""`grapnel-node run` and `devices` as they are shipped: the command line, NVML's library, a kubelet."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet
from lab.nvml import install, models, state
from lab.nvml.machine import Check, Link
from tests.plugin.daemon_process import RESOURCE
from tests.plugin.fakes import make_dev
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nvml.machine import Machine

REPOSITORY = Path(__file__).parents[3]
SCRIPT = "import sys; from plugin.cli import main; sys.exit(main())"


class Node:
    """A folder with a library, device nodes and a configuration."""

    def __init__(self, folder: Path, gpus: int) -> None:
        self.folder = folder
        self.machine = models.machine("a100-40gb", gpus)
        self.uuids = [gpu.uuid for gpu in self.machine.gpus]
        self.library = install(folder / "lib", "550.163.01", self.machine)
        make_dev(folder / "dev", gpus)
        config = {
            "kubeletRoot": str(folder / "kubelet"),
            "devRoot": str(folder / "dev"),
            "sysRoot": str(folder / "sys"),
            "hookPath": "/bin/true",
            "adminSocket": str(folder / "run/node.sock"),
            "stateFolder": str(folder / "state"),
            "refreshSeconds": 0.1,
            "retrySeconds": 0.1,
            "healthSeconds": 0.1,
            "quietSeconds": 0.1,
        }
        (folder / "node.json").write_text(json.dumps(config))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", SCRIPT, *arguments, "--config", str(self.folder / "node.json")]

    def environment(self) -> dict[str, str]:
        library_path = str(self.library.parent)
        return {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": library_path}

    def run(self, *arguments: str, standard_input: str = "") -> subprocess.CompletedProcess[str]:
        command, environment = self.command(*arguments), self.environment()
        return subprocess.run(
            command, env=environment, input=standard_input, capture_output=True, text=True, check=False, timeout=60
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(self.command("run"), env=self.environment(), stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, 2)


@pytest.fixture
def daemon(node: Node) -> Iterator[subprocess.Popen[bytes]]:
    with node.running() as process:
        yield process


@pytest.mark.slow
def test_a_gpu_falls_off_the_bus_and_comes_back(node: Node, daemon: subprocess.Popen[bytes]) -> None:
    with Kubelet(node.folder / "kubelet") as kubelet:
        assert kubelet.wait_for_devices(RESOURCE, 2) == sorted(node.uuids)
        state.update(node.library, lambda machine: machine.with_gpu_lost(0))
        assert kubelet.wait_for_devices(RESOURCE, 1) == [node.uuids[1]]
        answer = kubelet.allocate(RESOURCE, 1, "pod").response
        assert answer.annotations["grapnel.dev/allocation"] == node.uuids[1]
        state.update(node.library, lambda machine: replace(machine, failures=()))
        kubelet.wait_for_devices(RESOURCE, 2)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(20) == 0
        wait_until(lambda: kubelet.capacity(RESOURCE) == 0, node.log)
    assert "msg=stopping" in node.log()


def linked(machine: Machine, *pairs: tuple[int, int]) -> Machine:
    """Return the machine with four NVLinks for each of these pairs, and no others."""
    addresses = [gpu.pci_address for gpu in machine.gpus]
    for index in range(len(addresses)):
        ends = [other if index == one else one for one, other in pairs if index in {one, other}]
        machine = machine.with_gpu(
            index, links=tuple(Link(remote_pci=addresses[end]) for end in ends for _ in range(4))
        )
    return machine


@pytest.mark.slow
def test_a_pod_is_given_gpus_that_are_linked(tmp_path: Path) -> None:
    node = Node(tmp_path, 4)
    state.update(node.library, lambda machine: linked(machine, (0, 3), (1, 2)))
    with node.running(), Kubelet(node.folder / "kubelet") as kubelet:
        kubelet.wait_for_devices(RESOURCE, 4)
        given = [kubelet.allocate(RESOURCE, size, f"pod-{number}").device_ids for number, size in enumerate((1, 2, 1))]
    assert [sorted(map(node.uuids.index, one)) for one in given] == [[0], [1, 2], [3]]


@pytest.mark.slow
def test_devices_are_shown_as_a_table_and_as_json(node: Node) -> None:
    (node.folder / "dev/nvidia1").unlink()
    table = subprocess.run(node.command("devices"), env=node.environment(), capture_output=True, text=True, check=True)
    lines = table.stdout.splitlines()
    assert lines[0].startswith("driver 550.163.01, 1 ")
    assert lines[1].split() == [*("GPU", "ID", "NODE", "PCI", "NUMA", "MEMORY", "MODEL", "STATE", "SINCE", "PODS")]
    assert [line.split()[1] for line in lines[2:]] == node.uuids[:1]
    finding, holders = table.stderr.splitlines()
    assert finding == f"note: {node.uuids[1]} is not offered: it has no device node nvidia1"
    assert holders.startswith("note: it is not known who has which GPU: ")
    shown = json.loads(
        subprocess.run(
            node.command("devices", "--json"), env=node.environment(), capture_output=True, check=True
        ).stdout
    )
    assert [device["uuid"] for device in shown["devices"]] == node.uuids[:1]
    assert shown["findings"] == [finding.removeprefix("note: ")]


def driver_files(pid: int) -> list[str]:
    """Return what a process has open or mapped of the driver."""
    process = Path(f"/proc/{pid}")
    opened = []
    for link in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            opened.append(str(link.readlink()))
    mapped = [line.split(maxsplit=5)[-1] for line in (process / "maps").read_text().splitlines()]
    return sorted({path for path in opened + mapped if "nvidia" in path.rpartition("/")[2]})


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
def test_a_release_leaves_nothing_of_the_driver_and_a_resume_loads_the_new_one(
    node: Node, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for name in ("nvidiactl", "nvidia0", "nvidia1"):
        (tmp_path / "dev" / name).unlink()
        os.mknod(tmp_path / "dev" / name, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    machine = replace(node.machine, devices=Check.CHECK, dev_root=str(tmp_path / "dev"))
    node.library = install(tmp_path / "lib", "535.261.03", machine)
    daemon: subprocess.Popen[bytes] = request.getfixturevalue("daemon")
    with Kubelet(tmp_path / "kubelet") as kubelet:
        kubelet.wait_for_devices(RESOURCE, 2)
        held = [str(tmp_path / "dev" / name) for name in ("nvidia0", "nvidia1", "nvidiactl")]
        assert driver_files(daemon.pid) == [*held, str(node.library)]
        released = node.run("release", "--json")
        assert driver_files(daemon.pid) == []
        assert released.returncode in {0, 3}, released.stderr
        assert daemon.pid not in [holder["pid"] for holder in json.loads(released.stdout)["holders"]]
        new = install(tmp_path / "lib", "535.309.01", machine)
        node.library.unlink()
        assert json.loads(node.run("resume", "--json").stdout)["offered"] == 2
        assert driver_files(daemon.pid) == [*held, str(new)]
        assert kubelet.wait_for_devices(RESOURCE, 2) == sorted(node.uuids)
    assert "version=535.309.01" in node.log()


def expect(version: str, **keys: object) -> str:
    return json.dumps({"schema": "grapnel.dev/expectation/v1alpha1", "driverVersion": version, **keys})


def failed_checks(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    result = json.loads(done.stdout)
    assert result["ok"] == (done.returncode == 0)
    assert done.returncode in {0, 3}, done.stderr
    return {check["name"]: check["message"] for check in result["checks"] if not check["ok"]}


def load_module(node: Node, version: str) -> None:
    folder = node.folder / "sys/module/nvidia"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "version").write_text(f"{version}\n")


@pytest.mark.slow
def test_a_node_is_verified_against_a_file_or_standard_input(node: Node) -> None:
    load_module(node, "550.163.01")
    path = node.folder / "expectation.json"
    path.write_text(expect("550.163.01", gpus=node.uuids, gpuCount=2))
    assert failed_checks(node.run("verify", "--json", "--expect", str(path))) == {}
    other = node.run("verify", "--json", "--expect", "-", standard_input=expect("560.35.05"))
    assert failed_checks(other) == {
        "module-version": "the loaded kernel module is 550.163.01: reload it or reboot",
        "library-version": "the installed libraries are 550.163.01: install the declared version",
    }
    words = node.run("verify", "--expect", str(path)).stdout.splitlines()
    assert [line.split()[:2] for line in words] == [
        ["ok", name]
        for name in (
            *("module-version", "library-version", "nvml", "gpu-count", "gpus", "gpu-answers"),
            *("mig", "fabric", "nvlink", "memory", "xids", "allocation"),
        )
    ]


@pytest.mark.slow
def test_module_and_library_of_two_versions_are_a_failed_check_in_plain_words(node: Node) -> None:
    load_module(node, "535.309.01")
    machine = replace(node.machine, module=Check.CHECK, sys_root=str(node.folder / "sys"))
    state.write(node.library, machine)
    failed = failed_checks(node.run("verify", "--json", "--expect", "-", standard_input=expect("535.309.01")))
    assert failed["library-version"] == "the installed libraries are 550.163.01: install the declared version"
    said = "nvml does not answer: rm has detected an nvml/rm version mismatch; the loaded module is of another version"
    assert failed["nvml"].startswith(said)


@pytest.mark.slow
def test_a_gpu_that_was_there_at_the_release_must_be_there_again(node: Node) -> None:
    load_module(node, "550.163.01")
    assert node.run("release").returncode in {0, 3}
    state.update(node.library, lambda machine: machine.with_gpu_lost(1))
    failed = failed_checks(node.run("verify", "--json", "--expect", "-", standard_input=expect("550.163.01")))
    assert failed == {
        "gpus": f"missing: {node.uuids[1]}",
        "gpu-answers": "gpu 1 (uuid unknown): gpu is lost",
    }


@pytest.mark.slow
def test_a_driver_that_hangs_is_a_failed_check_in_time(node: Node) -> None:
    load_module(node, "550.163.01")
    state.write(node.library, replace(node.machine, call_cost_us=3_600_000_000))
    done = node.run("verify", "--json", "--timeout", "1", "--expect", "-", standard_input=expect("550.163.01"))
    assert failed_checks(done)["nvml"].startswith("nvml: no answer within 1 s")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("{", "standard input: not valid json", id="no json"),
        pytest.param(expect("550"), "driverVersion: must be a driver version", id="a branch"),
    ],
)
def test_a_bad_expectation_is_an_error_and_no_failed_check(node: Node, content: str, message: str) -> None:
    done = node.run("verify", "--json", "--expect", "-", standard_input=content)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr


@pytest.mark.slow
def test_an_expectation_that_is_not_there_is_named(node: Node) -> None:
    done = node.run("verify", "--expect", str(node.folder / "absent.json"))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{node.folder}/absent.json: no such file or directory" in done.stderr


@pytest.mark.slow
def test_devices_of_a_released_node_are_shown_from_memory(node: Node) -> None:
    assert "the daemon does not run" in node.run("release").stdout
    state.write(node.library, replace(node.machine, call_cost_us=3_600_000_000))  # whoever asks the driver waits
    shown = node.run("devices")
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("released since 20")
    assert lines[0].endswith(": no GPU is offered; what follows is how it was then")
    assert lines[1] == "driver 550.163.01, 2 NVIDIA A100-SXM4-40GB"
    assert [line.split()[1] for line in lines[3:]] == node.uuids
    assert json.loads(node.run("devices", "--json").stdout)["released"] == {
        "since": lines[0].split()[2].rstrip(":"),
        "problem": "",
    }


@pytest.mark.slow
def test_a_release_without_a_daemon_and_with_a_driver_that_hangs_is_remembered_in_time(node: Node) -> None:
    state.write(node.library, replace(node.machine, call_cost_us=3_600_000_000))
    done = node.run("release", "--json", "--timeout", "1")
    assert done.returncode in {0, 3}, done.stderr
    problems = json.loads(done.stdout)["problems"]
    assert "the current GPUs are not known: nvml: no answer within 1 s" in problems
    assert json.loads((node.folder / "state/released.json").read_text())["gpus"] == []
