"""An engine is asked to start containers: what it is told, and what is made of its answers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import (
    HOOK,
    HOOK_CONFIG,
    PLAIN,
    WITH_GPU,
    TrialError,
    find_lack,
    try_containers,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

SCRATCH = "/var/lib/grapnel/engine"
BASE_SPEC = "/etc/grapnel/containerd/base-spec.json"
RUN = "ctr --namespace grapnel run"
LDD = """\
\tlinux-vdso.so.1 (0x00007ffd3d5f1000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0c3ca00000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f0c3cc4d000)
"""
SPEC: dict[str, Any] = {
    "process": {"cwd": "/"},
    "root": {"path": "rootfs"},
    "linux": {"resources": {"devices": [{"allow": False, "access": "rwm"}]}},
}
DEVICES = {
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}},
        {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia1"}]}},
    ],
    "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}]},
}
DUMP_OF_1_7 = """\
    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "runc"
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
          base_runtime_spec = "/etc/grapnel/containerd/base-spec.json"
          runtime_type = "io.containerd.runc.v2"
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            BinaryName = "/opt/runc"
            SystemdCgroup = true
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
          base_runtime_spec = ""
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
            BinaryName = ""
"""
DUMP_OF_2 = """\
        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
          runtime_type = 'io.containerd.runc.v2'
          base_runtime_spec = '/etc/grapnel/containerd/base-spec.json'
          [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
            BinaryName = ''
            SystemdCgroup = false
"""
OPTIONS_OF_1_7 = ["--runc-binary", "/opt/runc", "--runc-systemd-cgroup"]


@dataclass
class Trial:
    """A node with containerd, and the containers that it was told to start."""

    machine: Machine
    answers: list[Finished] = field(default_factory=list)
    specs: list[dict[str, Any]] = field(default_factory=list)

    def start(self) -> Finished:
        """Keep what the container is made of, while it is there."""
        self.specs.append(json.loads(self.machine.read(f"{SCRATCH}/trial.json")))
        self.specs[-1]["files"] = sorted(
            str(path.relative_to(self.machine.root / SCRATCH[1:] / "trial"))
            for path in (self.machine.root / SCRATCH[1:] / "trial").rglob("*")
            if path.is_file()
        )
        return self.answers.pop(0) if self.answers else Finished(0, "started\n")

    def runs(self) -> list[list[str]]:
        return [call.split()[3:] for call in self.machine.calls if call.startswith(RUN)]


@pytest.fixture
def trial(machine: Machine) -> Trial:
    for path in ("/bin/sh", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2", "/usr/bin/ctr"):
        machine.write(path, path, mode=0o755)
    made = Trial(machine)
    machine.teach("ldd /bin/sh", LDD)
    machine.teach("ctr --namespace grapnel", "")
    machine.teach("ctr --namespace grapnel oci spec", json.dumps(SPEC))
    machine.teach(RUN, made.start)
    machine.teach("containerd --config /etc/containerd/config.toml config dump", "")
    return made


@pytest.fixture
def with_gpu(trial: Trial) -> Trial:
    for path in (HOOK, "/dev/nvidia0", "/dev/nvidiactl"):
        trial.machine.write(path, mode=0o755)
    spec = {**SPEC, "hooks": {"prestart": [{"path": HOOK}]}}
    trial.machine.write(BASE_SPEC, json.dumps(spec))
    trial.machine.teach(f"{HOOK} cdi --output -", json.dumps(DEVICES))
    trial.machine.teach("containerd --config /etc/containerd/config.toml config dump", DUMP_OF_2)
    return trial


def test_a_container_is_made_of_the_machines_own_shell(trial: Trial) -> None:
    seen = try_containers(trial.machine.host, "containerd", SCRATCH)

    (spec,) = trial.specs
    assert seen == {PLAIN: frozenset()}
    assert spec["files"] == ["bin/sh", "lib/x86_64-linux-gnu/libc.so.6", "lib64/ld-linux-x86-64.so.2"]
    assert spec["root"] == {"path": str(trial.machine.root / SCRATCH[1:] / "trial")}
    assert spec["process"]["args"][0] == "/bin/sh"
    assert "devices" not in spec["linux"]


@pytest.mark.parametrize("status", [0, 1], ids=["labelled", "a policy without containers"])
def test_where_selinux_is_on_an_engine_may_start_what_it_is_made_of(trial: Trial, status: int) -> None:
    """Debian's policy lets an engine execute nothing that has the label of /var/lib."""
    machine = trial.machine
    machine.write("/sys/fs/selinux/enforce", "1")
    machine.teach("chcon", return_code=status)

    assert try_containers(machine.host, "containerd", SCRATCH) == {PLAIN: frozenset()}

    labelled = machine.calls.index(f"chcon -R -t container_file_t {machine.root / SCRATCH[1:] / 'trial'}")
    assert labelled < next(at for at, call in enumerate(machine.calls) if call.startswith(RUN))


def test_one_with_a_gpu_has_the_nodes_of_the_first_one_by_grapnels_handler(with_gpu: Trial) -> None:
    found = "/dev/nvidia0\n/dev/nvidiactl\n/lib64/libcuda.so.1\nstarted\n"
    with_gpu.answers += [Finished(0, "started\n"), Finished(0, found)]

    seen = try_containers(with_gpu.machine.host, "containerd", SCRATCH)

    plain, spec = with_gpu.specs
    assert seen[WITH_GPU] == {"/dev/nvidia0", "/dev/nvidiactl", "/lib64/libcuda.so.1"}
    assert "hooks" not in plain
    assert spec["hooks"]["prestart"] == [{"path": HOOK}]
    assert [node["path"] for node in spec["linux"]["devices"]] == ["/dev/nvidia0", "/dev/nvidiactl"]
    assert [rule["allow"] for rule in spec["linux"]["resources"]["devices"]] == [False, True, True]
    assert "NVIDIA_VISIBLE_DEVICES=0" in spec["process"]["env"]


@pytest.mark.parametrize(
    ("dump", "options", "place"),
    [(DUMP_OF_1_7, OPTIONS_OF_1_7, "system.slice:grapnel:trial"), (DUMP_OF_2, [], "/grapnel/trial")],
    ids=["1.7", "2"],
)
def test_it_is_started_with_the_options_of_the_handler(
    with_gpu: Trial, dump: str, options: list[str], place: str
) -> None:
    with_gpu.machine.teach("containerd --config /etc/containerd/config.toml config dump", dump)

    try_containers(with_gpu.machine.host, "containerd", SCRATCH)

    plain, ours = with_gpu.runs()
    assert [word for word in ours if word not in plain] == options
    assert with_gpu.specs[-1]["linux"]["cgroupsPath"] == place


def test_where_rules_give_gpus_to_namespaces_it_says_that_it_is_in_one(with_gpu: Trial) -> None:
    """The hook would refuse it, and no engine of such a node could be exchanged."""
    rules = [{"decision": "allow", "namespaces": ["research", "web"]}]
    with_gpu.machine.write(HOOK_CONFIG, json.dumps({"rules": rules}))

    try_containers(with_gpu.machine.host, "containerd", SCRATCH)

    plain, spec = with_gpu.specs
    assert spec["annotations"] == {"io.kubernetes.cri.sandbox-namespace": "research"}
    assert "annotations" not in plain


def test_a_container_that_does_not_start_is_told_with_the_reason_and_nothing_is_left(trial: Trial) -> None:
    trial.answers.append(Finished(1, "", "a warning\nctr: failed to start shim: gone\n: exit status 1\n"))

    with pytest.raises(TrialError, match=r"does not start: ctr: failed to start shim: gone; : exit status 1$"):
        try_containers(trial.machine.host, "containerd", SCRATCH)

    assert trial.machine.calls[-4:] == [
        "ctr --namespace grapnel tasks delete --force trial",
        "ctr --namespace grapnel containers delete trial",
        "ctr --namespace grapnel namespaces remove grapnel",
        "ctr --namespace grapnel namespaces list --quiet",
    ]
    assert trial.machine.host.names(SCRATCH) == ["trial.json"]
    assert not (trial.machine.root / SCRATCH[1:] / "trial").exists()


def test_one_that_ends_before_its_last_word_did_not_start(trial: Trial) -> None:
    trial.answers.append(Finished(0, "/dev/nvidia0\n"))

    with pytest.raises(TrialError, match="does not start"):
        try_containers(trial.machine.host, "containerd", SCRATCH)


@pytest.mark.parametrize("answer", ["", "no JSON"])
def test_an_engine_that_says_nothing_of_a_container_is_told(trial: Trial, answer: str) -> None:
    trial.machine.teach("ctr --namespace grapnel oci spec", answer)

    with pytest.raises(TrialError, match="a container cannot be made up"):
        try_containers(trial.machine.host, "containerd", SCRATCH)


@pytest.fixture
def with_docker(with_gpu: Trial) -> Trial:
    machine = with_gpu.machine
    runtimes = {"other": {"path": "/opt/other"}, "gpu": {"path": "/usr/lib/grapnel/hook/grapnel-runtime"}}
    machine.write("/etc/docker/daemon.json", json.dumps({"runtimes": runtimes}))
    machine.write("/usr/bin/docker", mode=0o755)
    machine.teach("docker", "")
    machine.teach("docker run", "started\n")
    return with_gpu


def test_docker_is_given_an_image_of_it_and_grapnels_runtime(with_docker: Trial) -> None:
    machine = with_docker.machine

    seen = try_containers(machine.host, "docker", SCRATCH)

    assert set(seen) == {PLAIN, WITH_GPU}
    plain, ours = (call.split() for call in machine.calls if call.startswith("docker run"))
    assert "--runtime" not in plain
    assert ours[ours.index("--runtime") + 1] == "gpu"
    assert [ours[index + 1] for index, word in enumerate(ours) if word == "--device"] == [
        "/dev/nvidia0",
        "/dev/nvidiactl",
    ]
    made = [call.split()[1] for call in machine.calls if call.startswith(("docker import", "docker image rm"))]
    assert made == ["image", "image", "import", "image", "import", "image"], "no image stays without its name"


def test_docker_without_runtimes_of_its_own_starts_one_without_a_gpu(with_docker: Trial) -> None:
    with_docker.machine.write("/etc/docker/daemon.json", json.dumps({"runtimes": None}))

    assert set(try_containers(with_docker.machine.host, "docker", SCRATCH)) == {PLAIN}


def test_docker_starts_none_with_a_gpu_where_only_pods_of_namespaces_get_one(with_docker: Trial) -> None:
    with_docker.machine.write(HOOK_CONFIG, json.dumps({"rules": [{"decision": "allow", "namespaces": ["web"]}]}))

    assert set(try_containers(with_docker.machine.host, "docker", SCRATCH)) == {PLAIN}


def test_an_engine_without_its_client_is_not_tried(machine: Machine) -> None:
    assert try_containers(machine.host, "containerd", SCRATCH) == {}
    assert try_containers(machine.host, "podman", SCRATCH) == {}


def test_the_client_is_found_by_the_name_that_suse_gives_it(trial: Trial) -> None:
    machine = trial.machine
    (machine.root / "usr/bin/ctr").rename(machine.root / "usr/bin/containerd-ctr")
    machine.teach("containerd-ctr --namespace grapnel", "")
    machine.teach("containerd-ctr --namespace grapnel oci spec", json.dumps(SPEC))
    machine.teach("containerd-ctr --namespace grapnel run", trial.start)

    assert set(try_containers(machine.host, "containerd", SCRATCH)) == {PLAIN}
    assert not any(call.startswith("ctr ") for call in machine.calls)


def test_what_containers_had_before_they_have_to_have_again() -> None:
    gpu = frozenset({"/dev/nvidia0", "/lib/libcuda.so.1"})

    assert find_lack({PLAIN: frozenset(), WITH_GPU: gpu}, {PLAIN: frozenset(), WITH_GPU: gpu | {"/dev/more"}}) is None
    assert find_lack({PLAIN: frozenset()}, {PLAIN: frozenset(), WITH_GPU: gpu}) is None
    assert "/lib/libcuda.so.1" in (find_lack({WITH_GPU: gpu}, {WITH_GPU: frozenset({"/dev/nvidia0"})}) or "")
    assert "no more" in (find_lack({WITH_GPU: gpu}, {PLAIN: frozenset()}) or "")
