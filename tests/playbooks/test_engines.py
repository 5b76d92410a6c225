"""Facts of engines, units and files: what is told of them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines.found import containerd_flaw, read_engines
from ansible_collections.grapnel.node.plugins.module_utils.files.watched import read_files
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import read_units

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

UNIT = "grapnel-node.service"


def test_containerd_without_its_client_is_trusted(machine: Machine) -> None:
    assert containerd_flaw(machine.host) is None


def test_engines_tell_version_and_complaint(machine: Machine) -> None:
    machine.write("/usr/bin/containerd", mode=0o755)
    machine.write("/etc/containerd/config.toml", "[")
    machine.teach("/usr/bin/containerd --version", "containerd github.com/x/containerd 1.7.24~ds1 1.7.24~ds1-6+b4\n")
    machine.teach("/usr/bin/containerd --config", return_code=1, stderr="containerd: (1, 2): unexpected end\n")

    engines = read_engines(machine.host)

    assert engines["containerd"] == {
        "binary": "/usr/bin/containerd",
        "version": "1.7.24",
        "config_error": "containerd: (1, 2): unexpected end",
        "imports": {},
    }
    assert engines["podman"] is None


def test_crio_is_asked_for_its_complaint(machine: Machine) -> None:
    machine.write("/usr/bin/crio", mode=0o755)
    machine.write("/etc/crio/crio.conf", "[")
    machine.teach("/usr/bin/crio --version", "crio version 1.36.3\n   GitCommit: x\n")
    machine.teach("/usr/bin/crio config", return_code=1, stderr="level=info msg=x\nlevel=fatal msg=broken\n")

    assert read_engines(machine.host)["crio"] == {
        "binary": "/usr/bin/crio",
        "version": "1.36.3",
        "config_error": "level=fatal msg=broken",
    }


@pytest.mark.parametrize(
    ("stderr", "complaint"),
    [
        pytest.param("unable to configure: invalid JSON\n", "unable to configure: invalid JSON", id="a broken file"),
        pytest.param("unknown flag: --validate\nSee 'dockerd --help'.\n", None, id="a Docker that cannot be asked"),
    ],
)
def test_docker_is_asked_by_its_daemon(machine: Machine, stderr: str, complaint: str | None) -> None:
    machine.write("/usr/bin/docker", mode=0o755)
    machine.write("/etc/docker/daemon.json", "{")
    assert read_engines(machine.host)["docker"] is None
    machine.write("/usr/sbin/dockerd", mode=0o755)
    machine.teach("/usr/sbin/dockerd --version", "Docker version 26.1.5+dfsg1, build a72d7cd\n")
    machine.teach("/usr/sbin/dockerd --validate", return_code=1, stderr=stderr)

    assert read_engines(machine.host)["docker"] == {
        "binary": "/usr/sbin/dockerd",
        "version": "26.1.5",
        "config_error": complaint,
        "takes_gpus": None,
    }


PROGRAM = "/usr/local/sbin/nvidia-container-runtime-hook"


@pytest.mark.parametrize(
    ("program", "age_s", "known"),
    [
        pytest.param(PROGRAM, 60, True, id="started after ours was there"),
        pytest.param(PROGRAM, -60, False, id="started before"),
        pytest.param("/usr/bin/nvidia-container-runtime-hook", 60, True, id="NVIDIA's own was there"),
        pytest.param("/opt/nvidia-container-runtime-hook", 60, False, id="where dockerd does not look"),
    ],
)
def test_docker_knows_gpus_if_it_started_after_the_program(
    machine: Machine, program: str, age_s: int, *, known: bool
) -> None:
    changed = int(machine.write(program, mode=0o755).stat().st_ctime)
    machine.write("/usr/sbin/dockerd", mode=0o755)
    machine.teach("/usr/sbin/dockerd --version", "Docker version 26.1.5+dfsg1, build a72d7cd\n")
    machine.write("/run/docker.pid", "42\n")
    machine.write("/proc/stat", f"cpu 1 2\nbtime {changed + age_s - 100}\n")
    ticks = 100 * os.sysconf("SC_CLK_TCK")
    machine.write("/proc/42/stat", f"42 (a b) c) S {' '.join('0' * 18)} {ticks} 0\n")

    assert read_engines(machine.host)["docker"]["takes_gpus"] is known


@pytest.mark.parametrize("left", ["", "42", "x", "../.."])
def test_a_docker_that_is_gone_knows_nothing_of_gpus(machine: Machine, left: str) -> None:
    machine.write("/usr/sbin/dockerd", mode=0o755)
    machine.teach("/usr/sbin/dockerd --version", "Docker version 26.1.5\n")
    machine.write(PROGRAM, mode=0o755)
    machine.write("/proc/stat", "btime 1\n")
    machine.write("/run/docker.pid", left)
    assert read_engines(machine.host)["docker"]["takes_gpus"] is None


def test_units_are_told_in_systemds_words(machine: Machine) -> None:
    machine.teach(
        "systemctl show",
        "Id=containerd.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n"
        "StateChangeTimestampMonotonic=12\nKillMode=process\n\n"
        "Id=crio.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\nStateChangeTimestampMonotonic=0\n",
    )

    units = read_units(machine.host, Clock())

    assert units["containerd.service"] == {
        "load": "loaded",
        "active": "active",
        "enabled": "enabled",
        "kill_mode": "process",
        "newer_files": [],
    }
    assert units["crio.service"]["load"] == "not-found"


def at_work(unit: str, since_s: float, **more: str) -> str:
    told = {"Id": unit, "LoadState": "loaded", "ActiveState": "active", **more}
    lines = [f"{name}={value}" for name, value in told.items()]
    return "\n".join([*lines, f"StateChangeTimestampMonotonic={int(since_s * 1_000_000)}", "", ""])


CONFIG, DROP_IN = "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"
LIMITS = "/etc/systemd/system/containerd.service.d/limits.conf"
SETTINGS = "/var/lib/kubelet/config.yaml"
GENERATED = "/run/systemd/generator/containerd.service.d/x.conf"


def newer_files(machine: Machine, since_s: float, *, age_s: float = 60, **more: str) -> dict[str, list[str]]:
    """Return what is newer than services at work since a moment, 1000 s after the boot; files are of `age_s` before."""
    for path in (CONFIG, DROP_IN, LIMITS, GENERATED, "/etc/docker/daemon.json", SETTINGS):
        machine.write(path, "")
    os.utime(machine.host.path(DROP_IN), (1, 1))  # as `cp -p` leaves it
    written = machine.host.path(LIMITS).stat().st_ctime
    clock = replace(Clock(), now=lambda: written + age_s, monotonic=lambda: 1000.0)
    units = at_work("containerd.service", since_s, DropInPaths=f"{LIMITS} {GENERATED}", **more)
    machine.teach("systemctl show", units + at_work("docker.service", 990) + at_work("kubelet.service", since_s))
    told = read_units(machine.host, clock, list(read_files(machine.host, [SETTINGS])), {"kubelet.service": [SETTINGS]})
    return {unit: each["newer_files"] for unit, each in told.items()}


def test_what_a_service_reads_at_its_start_and_was_changed_since_is_told(machine: Machine) -> None:
    assert newer_files(machine, 100) == {
        "containerd.service": [DROP_IN, CONFIG, LIMITS],
        "docker.service": [],
        "kubelet.service": [SETTINGS],
    }
    assert not any(newer_files(machine, 990).values())


def test_a_service_that_does_not_run_has_all_before_it(machine: Machine) -> None:
    assert newer_files(machine, 100, ActiveState="inactive")["containerd.service"] == []


@pytest.mark.parametrize("age_s", [4000, -4000], ids=["set forward", "set back"])
def test_a_clock_that_was_set_since_makes_no_file_newer(machine: Machine, age_s: float) -> None:
    assert newer_files(machine, 100, age_s=age_s)["containerd.service"] == []


def test_what_a_killed_run_left_beside_a_file_is_no_file_of_the_engine(machine: Machine) -> None:
    machine.write("/etc/crio/crio.conf.d/.99-nvidia.conf.grapnel-old", "[crio]\n")
    machine.write("/etc/crio/crio.conf.d/10-site.conf", "[crio]\n")

    found = [path for path in read_files(machine.host, []) if path.startswith("/etc/crio/crio.conf.d/")]

    assert found == ["/etc/crio/crio.conf.d/10-site.conf", "/etc/crio/crio.conf.d/99-nvidia.conf"]


def test_hook_files_of_the_folders_that_crio_and_podman_read_are_told(machine: Machine) -> None:
    machine.write("/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "{}")
    machine.write("/etc/containers/oci/hooks.d/other.json", "{}")
    machine.write("/etc/containers/oci/hooks.d/README", "no hook")

    found = [path for path, state in read_files(machine.host, []).items() if state is not None]

    assert found == ["/etc/containers/oci/hooks.d/other.json", "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('[crio.runtime]\nhooks_dir = ["/opt/hooks"]\n', id="a table"),
        pytest.param('crio.runtime.hooks_dir=["/opt/hooks"]', id="a dotted key"),
        pytest.param("crio = { runtime = { \"hooks_dir\" = [ '/opt/hooks' ] } }", id="tables in a line"),
        pytest.param('hooks_dir = [\n  "/a", # not ] the end\n  "/opt/./hooks/",\n]', id="several lines"),
    ],
)
def test_hook_files_of_a_folder_that_crios_configuration_names_are_told(machine: Machine, text: str) -> None:
    machine.write("/etc/crio/crio.conf.d/10-site.conf", text)
    machine.write("/opt/hooks/gpu.json", '{"version": "1.0.0"}')

    assert read_files(machine.host, [])["/opt/hooks/gpu.json"]["content"] == '{"version": "1.0.0"}'


def test_of_many_folders_and_hook_files_the_first_are_told(machine: Machine) -> None:
    folders = [f"/opt/hooks{number}" for number in range(9)]
    machine.write("/etc/crio/crio.conf", f"[crio.runtime]\n# hooks_dir = ['/off']\nhooks_dir = {json.dumps(folders)}\n")
    for folder in (*folders, "/off"):
        for number in range(40):
            machine.write(f"{folder}/{number:02}.json", "{}")

    found = [path for path in read_files(machine.host, []) if path.startswith(("/opt/", "/off"))]

    assert found == [f"{folder}/{number:02}.json" for folder in folders[:4] for number in range(32)]


def test_a_name_that_is_no_text_is_told_as_text(machine: Machine) -> None:
    folder = machine.write("/etc/containerd/conf.d/50-site.toml").parent
    os.close(os.open(os.fsencode(folder) + b"/60-\xff.toml", os.O_CREAT))

    assert "/etc/containerd/conf.d/60-\\xff.toml" in read_files(machine.host, [])


def test_files_tell_text_mode_and_absence(machine: Machine) -> None:
    machine.write("/etc/containerd/conf.d/50-site.toml", "version = 2\n", mode=0o600)
    (machine.root / "etc/containerd/config.toml").write_bytes(b"\xff\xfe")
    machine.write("/etc/grapnel/hook.json", "x" * 300_000)

    files = read_files(machine.host, ["/etc/more"])

    assert files["/etc/containerd/conf.d/50-site.toml"]["content"] == "version = 2\n"
    assert files["/etc/containerd/conf.d/50-site.toml"]["mode"] == "0600"
    assert files["/etc/containerd/config.toml"]["content"] is None
    assert files["/etc/grapnel/hook.json"]["content"] is None
    assert files["/etc/more"] is None
    assert files[f"/run/grapnel/restart/{UNIT}"] is None


def test_device_classes_are_told_without_what_lies_beside_them(machine: Machine) -> None:
    for name in ("rdma-shared.json", ".rdma-shared.json.grapnel-new", "notes.txt"):
        machine.write(f"/etc/grapnel/devices.d/{name}", "{}")

    found = [path for path in read_files(machine.host, []) if path.startswith("/etc/grapnel/devices.d/")]

    assert found == ["/etc/grapnel/devices.d/rdma-shared.json"]
