"""The client against a real containerd with real runc, and the images of the lab."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import bundle, images
from lab.cri import Cri, CriError, Device, Mount
from lab.cri.config import ContainerSpec, container_config
from lab.cri.engine import Engine, Handler, containerd, default_spec, packages, unpack
from lab.cri.log import read_log
from lab.nvml import install, models

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cri import Pod

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd and runc need root"),
]

SHELL = images.reference("gpu-shell")
VERSION = "550.163.01"
GREEDY = images.reference("greedy")
TEST = images.reference("gpu-test")


@pytest.fixture(scope="module")
def hook_states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the hook of handler `nvidia` leaves each state that it was given."""
    return tmp_path_factory.mktemp("states")


@pytest.fixture(scope="module", params=["trixie", "bookworm"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, hook_states: Path
) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("engine")
    programs = unpack(packages(request.param), folder / "packages")
    hook = {"path": "/bin/sh", "args": ["sh", "-c", f"cat > {hook_states}/$$.json"], "env": ["PATH=/bin:/usr/bin"]}
    spec = folder / "base-spec.json"
    spec.write_text(json.dumps(default_spec(programs) | {"hooks": {"createRuntime": [hook]}}))
    handlers = {"nvidia": Handler(base_runtime_spec=spec, container_annotations=["grapnel.dev/*"])}
    with containerd(folder, programs, handlers) as engine:
        for name in images.NAMES:
            engine.import_image(images.archive(name))
        yield engine


@pytest.fixture(scope="module")
def cri(engine: Engine) -> Iterator[Cri]:
    with engine.cri(timeout_s=30) as cri:
        yield cri


@pytest.fixture(scope="module")
def pod(cri: Cri) -> Iterator[Pod]:
    pod = cri.run_pod("work", handler="nvidia")
    yield pod
    cri.remove_pod(pod)


def test_images_are_there_by_their_names(cri: Cri) -> None:
    assert cri.images() == sorted(map(images.reference, images.NAMES))


def test_a_container_gives_its_exit_code_and_output(cri: Cri, pod: Pod) -> None:
    done = cri.run(pod, SHELL, ["sh", "-c", "echo out; echo $NAME >&2; exit 3"], env={"NAME": "value"})
    assert (done.exit_code, sorted(done.log.split())) == (3, ["out", "value"])


def test_the_greedy_image_asks_for_every_gpu(cri: Cri, pod: Pod) -> None:
    assert "NVIDIA_VISIBLE_DEVICES=all" in cri.run(pod, GREEDY, ["env"]).log
    assert "NVIDIA" not in cri.run(pod, SHELL, ["env"]).log


def test_devices_and_mounts_arrive(cri: Cri, pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    done = cri.run(
        pod,
        SHELL,
        ["sh", "-c", "cat /given/file; test -c /dev/other && echo a node"],
        devices=[Device("/dev/null", "/dev/other")],
        mounts=[Mount(str(tmp_path), "/given", read_only=True)],
    )
    assert done.log == "contenta node\n"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with nvidia-smi, and substitutes that can be opened for the device nodes of two GPUs."""
    folder = tmp_path_factory.mktemp("driver")
    packages = bundle.ensure("trixie").packages()
    (deb,) = (one.path for one in packages if one.name == "nvidia-smi" and one.upstream_version == VERSION)
    subprocess.run(["dpkg-deb", "-x", str(deb), str(folder)], check=True)
    for name, minor in {"nvidia0": 16, "nvidia1": 17, "nvidiactl": 62}.items():
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(4, minor))
    return folder


def _mounts(driver: Path, library: Path) -> list[Mount]:
    return [
        Mount(str(library), f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{VERSION}", read_only=True),
        Mount(str(library), "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", read_only=True),
        Mount(str(driver / "usr/lib/nvidia/current/nvidia-smi"), "/usr/bin/nvidia-smi", read_only=True),
    ]


def test_the_real_nvidia_smi_runs_where_it_and_a_library_are_mounted(
    cri: Cri, pod: Pod, driver: Path, tmp_path: Path
) -> None:
    """The machine travels inside the library's file: nothing else is mounted."""
    machine = models.machine("a100-40gb", 2)
    mounts = _mounts(driver, install(tmp_path, VERSION, machine))
    done = cri.run(pod, SHELL, ["nvidia-smi", "-L"], mounts=mounts)
    assert [line.split("UUID: ")[1] for line in done.log.splitlines()] == [f"{gpu.uuid})" for gpu in machine.gpus]


def test_a_container_has_the_gpus_whose_nodes_it_may_open(cri: Cri, pod: Pod, driver: Path, tmp_path: Path) -> None:
    """A node that the container makes itself is there, but the device cgroup does not let it be opened."""
    machine = replace(models.machine("a100-40gb", 2), devices="check")
    done = cri.run(
        pod,
        SHELL,
        ["sh", "-c", "mknod /dev/nvidia0 c 4 16 && nvidia-smi -L"],
        mounts=_mounts(driver, install(tmp_path, VERSION, machine)),
        devices=[Device(str(driver / name), f"/dev/{name}") for name in ("nvidiactl", "nvidia1")],
    )
    assert done.log == f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: {machine.gpus[1].uuid})\n"


def test_the_gpu_test_holds_its_gpus_until_it_is_told_to_end(
    engine: Engine, cri: Cri, pod: Pod, driver: Path, tmp_path: Path
) -> None:
    machine = replace(models.machine("a100-40gb", 2), devices="check")
    given = ContainerSpec(
        TEST,
        mounts=_mounts(driver, install(tmp_path, VERSION, machine)),
        devices=[Device(str(driver / name), f"/dev/{name}") for name in ("nvidiactl", "nvidia1")],
    )
    uuid = machine.gpus[1].uuid
    container = cri.start(pod, container_config(given))
    try:
        held = _await_line(Path(cri.status(container).log_path), f"holding {uuid}")
        opened = cri.exec(container, ["sh", "-c", "for one in /proc/1/fd/*; do readlink $one; done | grep nvidia"]).log
        engine.ctr("task", "kill", "--signal", "SIGTERM", container)
        done = cri.wait(container)
    finally:
        cri.remove(container)
    assert held == ["1", uuid, "opened /dev/nvidia1", f"holding {uuid}"]
    assert opened == "/dev/nvidia1\n"
    assert done.exit_code == 0


def _await_line(log: Path, line: str) -> list[str]:
    """Return what a container has printed once it has printed a line."""
    deadline = time.monotonic() + 20
    while line not in (printed := read_log(log).splitlines()):
        assert time.monotonic() < deadline, f"printed so far: {printed}"
        time.sleep(0.05)
    return printed


def test_the_gpu_test_tells_a_node_that_is_there_from_one_that_opens(cri: Cri, pod: Pod, driver: Path) -> None:
    making = "mknod /dev/nvidia0 c 4 16; mkdir /dev/nvidia-caps; mknod /dev/nvidia-caps/nvidia-cap1 c 4 20"
    seen = json.loads(
        cri.run(
            pod,
            TEST,
            ["sh", "-c", f"{making}; gpu-test look"],
            devices=[Device(str(driver / "nvidia1"), "/dev/nvidia1")],
        ).log
    )
    assert seen["devices"] == [
        {"path": "/dev/nvidia0", "major": 4, "minor": 16, "error": "EPERM"},
        {"path": "/dev/nvidia1", "major": 4, "minor": 17, "error": ""},
        {"path": "/dev/nvidia-caps/nvidia-cap1", "major": 4, "minor": 20, "error": "EPERM"},
    ]
    assert seen["gpus"] == []
    assert seen["libraries"].keys() == {"libcuda.so.1", "libnvidia-ml.so.1"}
    assert all("cannot open shared object file" in problem for problem in seen["libraries"].values())


def test_logs_are_read_through_the_root_of_an_engine_elsewhere(engine: Engine, tmp_path: Path) -> None:
    with Cri(
        engine.socket, log_dir=tmp_path, engine_root=Path("/proc/self/root"), cgroup_parent=engine.cgroup_parent
    ) as cri:
        pod = cri.run_pod("elsewhere")
        assert cri.run(pod, SHELL, ["echo", "seen"]).log == "seen\n"
        cri.remove_pod(pod)
    assert list(tmp_path.rglob("*.log")), "logs in a folder of the caller stay"


def test_a_control_node_that_may_not_be_opened_is_an_unknown_error(
    cri: Cri, pod: Pod, driver: Path, tmp_path: Path
) -> None:
    """What users see when a device cgroup lost its rules."""
    library = install(tmp_path, VERSION, replace(models.machine(), devices="check"))
    command = ["sh", "-c", "mknod /dev/nvidiactl c 4 62 && nvidia-smi"]
    done = cri.run(pod, SHELL, command, mounts=_mounts(driver, library))
    assert done.log == "Failed to initialize NVML: Unknown Error\n"


def test_a_handler_s_hook_runs_for_containers_and_not_for_the_sandbox(cri: Cri, hook_states: Path) -> None:
    before = set(hook_states.iterdir())
    pod = cri.run_pod("hooked", handler="nvidia")
    assert set(hook_states.iterdir()) == before
    cri.run(pod, SHELL, ["true"], annotations={"grapnel.dev/allocation": "GPU-1"})
    (added,) = set(hook_states.iterdir()) - before
    cri.remove_pod(pod)
    assert json.loads(added.read_text())["annotations"]["grapnel.dev/allocation"] == "GPU-1"


def test_a_container_of_another_handler_has_no_hook(cri: Cri, hook_states: Path) -> None:
    before = set(hook_states.iterdir())
    pod = cri.run_pod("plain")
    cri.run(pod, SHELL, ["true"])
    cri.remove_pod(pod)
    assert set(hook_states.iterdir()) == before


def test_annotations_pass_only_through_the_handler_that_lets_them(engine: Engine, cri: Cri, pod: Pod) -> None:
    annotations = {"grapnel.dev/allocation": "GPU-1", "other": "x"}
    container = cri.start(pod, container_config(ContainerSpec(SHELL, ["sleep", "60"], annotations=annotations)))
    bundle_config = engine.folder / "state/io.containerd.runtime.v2.task/k8s.io" / container / "config.json"
    kept = json.loads(bundle_config.read_text())["annotations"]
    assert cri.exec(container, ["cat", "/etc/debian_version"]).log == "13.0\n"
    cri.remove(container)
    assert kept["grapnel.dev/allocation"] == "GPU-1"
    assert "other" not in kept


def test_a_refusal_carries_the_engine_s_words(cri: Cri, pod: Pod) -> None:
    with pytest.raises(CriError, match="no-such-program"):
        cri.run(pod, SHELL, ["no-such-program"])
    with pytest.raises(CriError, match=r'no runtime for "absent"'):
        cri.run_pod("refused", handler="absent")


def test_a_container_that_runs_on_is_given_up_and_removed(engine: Engine, pod: Pod) -> None:
    with engine.cri(timeout_s=1) as impatient, pytest.raises(CriError, match="still running after 1 s"):
        impatient.run(pod, SHELL, ["sh", "-c", "echo busy; sleep 60"])


def _fail_with_a_running_container(folder: Path) -> None:
    programs = unpack(packages("trixie"), folder / "packages")
    with containerd(folder, programs) as engine, engine.cri() as cri:
        for name in ("pause", "gpu-shell"):
            engine.import_image(images.archive(name))
        cri.start(cri.run_pod("left"), container_config(ContainerSpec(SHELL, ["sleep", "1000"])))
        raise ZeroDivisionError(engine.cgroup_parent)


def test_a_block_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _fail_with_a_running_container(tmp_path)
    groups = list(Path("/sys/fs/cgroup").glob(f"*{caught.value}"))
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(tmp_path) in line]
    assert (groups, mounts) == ([], [])


def test_an_engine_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    programs = unpack(packages("trixie"), tmp_path / "packages")
    handlers = {"nvidia": Handler(base_runtime_spec=tmp_path / "absent.json")}
    with pytest.raises(CriError, match="does not answer") as caught, containerd(tmp_path, programs, handlers):
        pass
    assert "absent.json" in caught.value.hint
