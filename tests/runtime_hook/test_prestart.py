"""The hook as a process: what it refuses, how it says so, how long it may take, what it imports."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from runtime_hook import prestart
from runtime_hook.base.deadline import Deadline
from runtime_hook.inputs.bundle import parse_state, read_container_file
from runtime_hook.inputs.config import HookConfig
from tests.runtime_hook.containers import HOOK, run_hook
from tests.runtime_hook.drivertree import uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.runtime_hook.drivertree import DriverTree


def state(bundle: object, pid: object = 1) -> bytes:
    return json.dumps({"ociVersion": "1.0.2", "id": "c1", "pid": pid, "bundle": str(bundle)}).encode()


def bundle(path: Path, **parts: Any) -> Path:
    path.mkdir(exist_ok=True)
    content = {"process": {"env": parts.get("env", [])}, "root": {"path": "rootfs"}, "linux": {}, **parts}
    content.pop("env", None)
    (path / "config.json").write_text(json.dumps(content))
    return path


def assert_one_line(done: subprocess.CompletedProcess[bytes], words: str) -> None:
    error = done.stderr.decode()
    assert done.returncode == 1, error
    assert error.startswith("grapnel-hook: ")
    assert error.count("\n") == 1
    assert words in error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        pytest.param(b"", "no container state on stdin", id="nothing"),
        pytest.param(b" \n", "no container state on stdin", id="white space"),
        pytest.param(b"{", "not JSON", id="half a document"),
        pytest.param(b"{}{}", "more text behind", id="two documents"),
        pytest.param(b"\xff\xfe", "utf-8", id="not text"),
        pytest.param(b"[1]", "is not a JSON object but a list", id="a list"),
        pytest.param(b'{"id": 1}', "id is not a string but an integer", id="a number as id"),
        pytest.param(b'{"id": "a", "pid": true, "bundle": "/"}', "pid is not an integer", id="a flag as pid"),
        pytest.param(b'{"id": "a", "pid": 0, "bundle": "/"}', "pid 0 is no process", id="pid 0"),
        pytest.param(b'{"id": "a", "pid": 1, "bundle": "x"}', "bundle is not an absolute path", id="relative bundle"),
        pytest.param(b'{"id": "a", "pid": NaN, "bundle": "/"}', "not JSON: NaN is no value of it", id="not a number"),
        pytest.param(b"[" * 100_000, "JSON", id="nested deeply"),
        pytest.param(b" " * (5 << 20), "larger than 4 MiB", id="too much"),
        pytest.param(
            b'{"id": "a", "pid": 1, "bundle": "/nowhere"}', "/nowhere/config.json does not exist", id="no bundle"
        ),
    ],
)
def test_a_bad_state_is_refused_in_one_line(configure: Callable[..., list[str]], stdin: bytes, words: str) -> None:
    assert_one_line(run_hook(["prestart", *configure()], stdin), words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param("fifo", "is not a regular file", id="a FIFO"),
        pytest.param("loop", "cannot open", id="a loop of links"),
        pytest.param("folder", "is not a regular file", id="a folder"),
        pytest.param("huge", "larger than 16 MiB", id="a huge file"),
        pytest.param("noise", "config.json", id="noise"),
        pytest.param("types", "annotations is not an object but a list", id="wrong types"),
    ],
)
def test_a_bad_bundle_is_refused_in_one_line(
    configure: Callable[..., list[str]], tmp_path: Path, kind: str, words: str
) -> None:
    path = tmp_path / "config.json"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to("config.json")
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(17 << 20)
    else:
        path.write_text("\x00\x01" if kind == "noise" else '{"annotations": []}')
    assert_one_line(run_hook(["prestart", *configure()], state(tmp_path)), words)


def test_a_bad_configuration_refuses_every_container(configure: Callable[..., list[str]], tmp_path: Path) -> None:
    done = run_hook(["prestart", *configure(entitlment="env")], state(bundle(tmp_path / "b")))
    assert_one_line(done, "unknown key entitlment")


@pytest.mark.slow
def test_a_state_that_never_comes_ends_at_the_time_limit(configure: Callable[..., list[str]]) -> None:
    reader, writer = os.pipe()
    argv = ["/usr/bin/python3", "-IS", str(HOOK), "prestart", *configure(timeoutS=1)]
    try:
        done = subprocess.run(argv, stdin=reader, capture_output=True, timeout=30, check=False)
    finally:
        os.close(reader)
        os.close(writer)
    assert_one_line(done, "not finished within 1 s")


def test_an_unknown_option_is_a_usage_error() -> None:
    assert run_hook(["prestart", "--verbose"]).returncode == 2
    assert run_hook(["nonsense"]).returncode == 2


@pytest.fixture
def log(tmp_path: Path) -> Callable[[], str]:
    """Listen as syslog would; returns the next line."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind(str(tmp_path / "log"))
    server.settimeout(5)

    def receive() -> str:
        with server:
            return server.recv(1 << 16).decode()

    return receive


def test_an_image_that_asks_in_vain_is_logged(
    configure: Callable[..., list[str]], tmp_path: Path, log: Callable[[], str]
) -> None:
    made = bundle(tmp_path / "b", env=["NVIDIA_VISIBLE_DEVICES=all"])
    done = run_hook(["prestart", *configure(log=str(tmp_path / "log"))], state(made))
    assert done.returncode == 0, done.stderr
    line = log()
    assert line.startswith("<85>grapnel-hook[")
    assert 'decision=nothing container=c1 reason="NVIDIA_VISIBLE_DEVICES is no entitlement on this node"' in line


def test_a_refusal_is_logged_and_its_text_stays_one_line(
    configure: Callable[..., list[str]], tmp_path: Path, log: Callable[[], str]
) -> None:
    made = bundle(tmp_path / "b", annotations={"grapnel.dev/allocation": "GPU-\n\u2028x"})
    done = run_hook(["prestart", *configure(log=str(tmp_path / "log"))], state(made))
    assert_one_line(done, "no NVIDIA driver libraries")
    line = log()
    assert "decision=refused container=c1" in line
    assert line.isprintable()


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        pytest.param(b"{", 'decision=refused reason="container state: ', id="no state"),
        pytest.param(
            state("/nowhere"), 'decision=refused container=c1 reason="/nowhere/config.json does not', id="no bundle"
        ),
    ],
)
def test_a_refusal_before_anything_is_known_of_the_container_is_logged(
    configure: Callable[..., list[str]], tmp_path: Path, log: Callable[[], str], stdin: bytes, words: str
) -> None:
    """Under crun, which shows nobody what a hook writes to stderr, there was no word of it anywhere."""
    assert run_hook(["prestart", *configure(log=str(tmp_path / "log"))], stdin).returncode == 1
    line = log()
    assert line.startswith("<84>grapnel-hook[")
    assert words in line


@pytest.mark.usefixtures("driver")
def test_a_refusal_of_a_gpu_under_another_name_is_logged(
    configure: Callable[..., list[str]], tmp_path: Path, log: Callable[[], str]
) -> None:
    """Only paths below /dev/nvidia and annotations were taken for a sign that the container is about a GPU."""
    renamed = {"devices": [{"path": "/dev/fast", "type": "c", "major": 4, "minor": 16}]}
    made = bundle(tmp_path / "b", env=["NVIDIA_DRIVER_CAPABILITIES=nonsense"], linux=renamed)
    done = run_hook(["prestart", *configure(log=str(tmp_path / "log"))], state(made))
    assert_one_line(done, "nonsense")
    assert "decision=refused container=c1 source=devices reason=" in log()


GPU = {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 4, "minor": 16}]}
CONTAINERD = {"io.kubernetes.cri.sandbox-namespace": "web", "io.kubernetes.cri.sandbox-name": "pod-1"}


def test_a_requirement_that_is_not_met_is_refused_and_logged(
    configure: Callable[..., list[str]], tmp_path: Path, driver: DriverTree, log: Callable[[], str]
) -> None:
    made = bundle(tmp_path / "b", env=["NVIDIA_REQUIRE_X=driver>=999"], linux=GPU, annotations=CONTAINERD)
    done = run_hook(["prestart", *configure(log=str(tmp_path / "log"))], state(made))
    where = f"NVIDIA_REQUIRE_X is not met on {uuid(0)}: driver>=999 fails, as driver is {driver.version}"
    assert_one_line(done, where)
    line = log()
    assert line.startswith("<84>grapnel-hook[")
    assert "decision=refused namespace=web pod=pod-1 container=c1 source=devices requirement=" in line
    assert f'requirement="NVIDIA_REQUIRE_X: driver>=999 fails, as driver is {driver.version}"' in line


@pytest.mark.usefixtures("driver")
def test_a_namespace_that_no_rule_allows_is_refused_and_logged(
    configure: Callable[..., list[str]], tmp_path: Path, log: Callable[[], str]
) -> None:
    rules = [{"decision": "allow", "namespaces": ["training"]}]
    made = bundle(tmp_path / "b", linux=GPU, annotations=CONTAINERD)
    done = run_hook(["prestart", *configure(log=str(tmp_path / "log"), rules=rules)], state(made))
    assert_one_line(done, "no rule allows GPUs for namespace web")
    assert "decision=refused namespace=web pod=pod-1 container=c1 source=devices reason=" in log()


def test_a_pod_cannot_take_its_name_out_of_the_log(
    configure: Callable[..., list[str]], tmp_path: Path, log: Callable[[], str]
) -> None:
    """Under CRI-O, which hands on a pod's annotations, containerd's key on the pod left the line without namespace."""
    crio = {"io.kubernetes.pod.namespace": "web", "io.kubernetes.pod.name": "pod-1"}
    crio |= {"io.kubernetes.cri-o.Annotations": "{}", "io.kubernetes.cri.sandbox-namespace": "kube-system"}
    linux = {"cgroupsPath": "kubepods-pod1.slice:crio:3f2a"}
    made = bundle(tmp_path / "b", env=["NVIDIA_VISIBLE_DEVICES=all"], annotations=crio, linux=linux)
    assert run_hook(["prestart", *configure(log=str(tmp_path / "log"))], state(made)).returncode == 0
    assert "decision=nothing namespace=web pod=pod-1 container=c1 reason=" in log()


@pytest.mark.usefixtures("driver")
def test_a_rule_can_accept_mounts_that_the_node_does_not(configure: Callable[..., list[str]], tmp_path: Path) -> None:
    mounts = [{"source": "/dev/null", "destination": "/var/run/nvidia-container-devices/9"}]
    made = bundle(tmp_path / "b", mounts=mounts)
    rules = [{"decision": "allow", "users": [0], "acceptVolumeMounts": True}]
    assert run_hook(["prestart", *configure(entitlement="env")], state(made)).returncode == 0
    assert_one_line(run_hook(["prestart", *configure(entitlement="env", rules=rules)], state(made)), "unknown GPU 9")


def test_rules_concern_nobody_who_asks_for_nothing(configure: Callable[..., list[str]], tmp_path: Path) -> None:
    made = bundle(tmp_path / "b", annotations=CONTAINERD)
    assert run_hook(["prestart", *configure(rules=[{"decision": "deny"}])], state(made)).returncode == 0


def test_a_container_of_the_hosts_own_namespace_is_refused(configure: Callable[..., list[str]], tmp_path: Path) -> None:
    """Nothing may ever be mounted in the host's namespace, whatever the state says."""
    made = bundle(tmp_path / "b", annotations={"grapnel.dev/allocation": "GPU-x"})
    done = run_hook(["prestart", *configure()], state(made, pid=os.getpid()))
    assert done.returncode == 1


def test_what_mounts_is_told_the_label_of_the_containers_mounts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No machine of the tests has both an enforcing kernel and the driver's folder in procfs."""
    told: list[tuple[object, ...]] = []
    monkeypatch.setattr("runtime_hook.container.root.KernelSyscalls", lambda *arguments: told.append(arguments))
    monkeypatch.setattr("runtime_hook.container.root.kill_after", lambda _: None)
    label = "system_u:object_r:container_file_t:s0:c1,c2"
    folder = bundle(tmp_path / "bundle", linux={"mountLabel": label})
    container = read_container_file(str(folder / "config.json"), str(folder))
    run = prestart.Run(parse_state(state(folder)), container, HookConfig(), Deadline())

    run._open_root()

    assert [arguments[-1] for arguments in told] == [label]
