"""What the GPU operator was told, as GpuStacks: what is carried over, and that nothing is dropped without a word."""

from __future__ import annotations

from typing import Any

import pytest

from provision.controller.stacks.file import judge_stack, read_stack_text
from provision.planning.gpu_operator.convert import LABEL, NO_VALUE, NO_VERSION
from provision.planning.gpu_operator.errors import OperatorObjectsError
from provision.planning.gpu_operator.model import Verdict
from provision.planning.gpu_operator.text import render_stack
from provision.planning.gpu_operator.verdicts import UNKNOWN
from tests.provision.gpu_operator.samples import KEYS, config_map, converted, driver, key_of, policy, values


def test_the_chart_s_defaults_become_a_stack() -> None:
    found = converted(policy())
    assert values(found) == {
        "runtime.handler": "nvidia",
        "runtime.adopt": True,
        "plugin.migStrategy": "single",
        "plugin.enabled": True,
        "plugin.metricsAddress": "0.0.0.0:9400",
        "driver.enabled": True,
        "driver.kernelModule": "auto",
        "driver.version": "550.163.01",
        "rollout.maxParallel": 1,
        "rollout.maxUnavailable": "25%",
        "rollout.drain.withoutController": "wait",
        "rollout.drain.withEmptyDir": "wait",
        "rollout.drainTimeoutMinutes": 5,
    }
    assert found.stacks[0].labels == {LABEL: "cluster-policy"}
    assert [key.path for key in found.of(Verdict.MISSING)] == ["spec.driver.source"]


@pytest.mark.parametrize(("kind", "path"), KEYS, ids=lambda each: each)
def test_every_key_of_the_operator_gets_a_verdict(kind: str, path: str) -> None:
    given: Any = [{"name": "SOME", "value": "x"}] if path.endswith("env") else "x"
    for key in reversed(path.split(".")):
        given = {key: given}
    switches = {"sandboxWorkloads__enabled": True, "driver__upgradePolicy__drain__enable": True}
    if kind == "ClusterPolicy":
        part = path.partition(".")[0]
        changed = policy(**switches)
        changed["spec"] = {key: each for key, each in changed["spec"].items() if key != part} | given
        found = converted(changed, driver("a"))
    else:
        found = converted(policy(driver__useNvidiaDriverCRD=True), driver("a", **{"driverType": None, **given}))
    shown = f"spec.{path}" if not path.endswith("env") else f"spec.{path}[SOME]"
    shown = "spec.nodeSelector" if path == "nodeSelector" else shown
    keys = [key for key in found.keys if key.path == shown and (key.value in ("x", True))]
    assert keys or path == "nodeSelector"
    for key in keys:
        assert key.why != UNKNOWN
        assert key.why or key.became or key.verdict is Verdict.IDLE


def test_a_key_that_nobody_knows_is_named() -> None:
    found = key_of(converted(policy(driver__colour="green")), "spec.driver.colour")
    assert (found.verdict, found.why) == (Verdict.MISSING, UNKNOWN)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"driver__version": "550"}, {"driver.branch": "550"}, id="a branch"),
        pytest.param({"driver__kernelModuleType": "open"}, {"driver.kernelModule": "open"}, id="the open module"),
        pytest.param(
            {"driver__upgradePolicy__maxParallelUpgrades": 0}, {"rollout.maxParallel": 100_000}, id="no limit at once"
        ),
        pytest.param(
            {"driver__upgradePolicy__podDeletion": {"force": True, "deleteEmptyDir": True, "timeoutSeconds": 0}},
            {
                "rollout.drain.withoutController": "evict",
                "rollout.drain.withEmptyDir": "evict",
                "rollout.drainTimeoutMinutes": 1440,
            },
            id="pods are deleted whatever they are, and as long as it takes",
        ),
        pytest.param(
            {"driver__upgradePolicy__waitForCompletion": {"podSelector": "app=train", "timeoutSeconds": 90}},
            {"rollout.waitFor.podSelector": "app=train", "rollout.waitFor.timeoutMinutes": 2},
            id="jobs are waited for",
        ),
        pytest.param({"devicePlugin__enabled": False}, {"plugin.enabled": False}, id="no device plugin"),
        pytest.param(
            {
                "toolkit__env": [
                    {"name": "CONTAINERD_CONFIG", "value": "/var/lib/rancher/k3s/agent/etc/containerd/c.toml"}
                ]
            },
            {"runtime.engine": "k3s"},
            id="the engine is k3s",
        ),
        *(
            pytest.param(
                {"toolkit__env": [{"name": name, "value": value}]},
                {"runtime.engine": engine},
                id=f"the engine of {value}",
            )
            for name, value, engine in (
                ("CONTAINERD_SOCKET", "/run/containerd/containerd.sock", "containerd"),
                ("RUNTIME_SOCKET", "/run/k0s/containerd.sock", "k0s"),
                ("CONTAINERD_SOCKET", "/var/snap/microk8s/common/run/containerd.sock", "microk8s"),
                ("RUNTIME_SOCKET", "unix:///var/run/crio/crio.sock", "crio"),
                ("DOCKER_SOCKET", "/var/run/docker.sock", "docker"),
                ("RUNTIME_DROP_IN_CONFIG", "/etc/containerd/conf.d/99-nvidia.toml", "containerd"),
            )
        ),
        pytest.param({"hostPaths__kubeletRootDir": "/data"}, {"plugin.kubeletRoot": "/data"}, id="the kubelet's root"),
    ],
)
def test_what_is_carried_over(changes: dict[str, Any], expected: dict[str, object]) -> None:
    found = values(converted(policy(**changes)))
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"driver__version": "sha256:0123"}, "spec.driver.version", NO_VALUE),
        ({"driver__usePrecompiled": True}, "spec.driver.usePrecompiled", "canonical"),
        ({"driver__rdma": {"enabled": True}}, "spec.driver.rdma.enabled", "peermem"),
        ({"driver__licensingConfig": {"secretName": "s"}}, "spec.driver.licensingConfig.secretName", "vGPU"),
        ({"driver__upgradePolicy__autoUpgrade": False}, "spec.driver.upgradePolicy.autoUpgrade", "grapnel pause"),
        ({"gds": {"enabled": True}}, "spec.gds.enabled", "nvidia-fs"),
        ({"sandboxWorkloads__enabled": True}, "spec.vfioManager.enabled", "virtual machines"),
        ({"devicePlugin__config": {"name": "gone"}}, "spec.devicePlugin.config.name", "ConfigMap"),
        (
            {"toolkit__env": [{"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "true"}]},
            "spec.toolkit.env[ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED]",
            "what the device plugin answered",
        ),
    ],
)
def test_what_has_no_counterpart_says_why(changes: dict[str, Any], path: str, word: str) -> None:
    found = next(key for key in converted(policy(**changes)).keys if key.path == path)
    assert found.verdict is Verdict.MISSING
    assert word in found.why


def test_driver_objects_that_the_policy_does_not_use_are_named() -> None:
    (found,) = [key for key in converted(policy(), driver("a")).keys if key.source == "NVIDIADriver a"]
    assert found.verdict is Verdict.IDLE
    assert "does not use NVIDIADriver objects" in found.why


def test_a_part_that_is_off_asks_for_nothing() -> None:
    found = converted(policy(driver__enabled=False))
    assert values(found)["driver.enabled"] is False
    assert "driver.version" not in values(found)
    assert key_of(found, "spec.driver.version").why == "driver is off"
    assert not found.of(Verdict.MISSING)


def test_a_policy_without_a_version_says_so() -> None:
    found = converted(policy(driver__version=""))
    assert [key.why for key in found.of(Verdict.MISSING) if key.path == "spec.driver.version"] == [NO_VERSION]


def test_each_driver_object_becomes_a_stack_of_its_nodes() -> None:
    found = converted(
        policy(driver__useNvidiaDriverCRD=True),
        driver("a100", nodeSelector={"gpu": "a100"}, kernelModuleType="open"),
        driver("h100", version="580.95.05", upgradePolicy={"maxParallelUpgrades": 4}),
        driver("virtual", driverType="vgpu"),
    )
    assert [(stack.name, dict(stack.labels)) for stack in found.stacks] == [
        ("a100", {LABEL: "a100", "gpu": "a100"}),
        ("h100", {LABEL: "h100"}),
    ]
    one, other = values(found, 0), values(found, 1)
    assert (one["driver.version"], one["driver.kernelModule"], one["rollout.maxParallel"]) == ("570.133.20", "open", 1)
    assert (other["driver.version"], other["rollout.maxParallel"]) == ("580.95.05", 4)
    assert one["plugin.migStrategy"] == "single", "what they share is the ClusterPolicy's"
    skipped = [
        key for key in found.keys if key.source.startswith("ClusterPolicy") and key.path == "spec.driver.version"
    ]
    assert [key.verdict for key in skipped] == [Verdict.IDLE]
    assert [key.value for key in found.of(Verdict.MISSING) if key.path == "spec.driverType"] == ["vgpu"]


SHARING = """version: v1
flags: {migStrategy: mixed, passDeviceSpecs: false, plugin: {deviceListStrategy: envvar}}
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""
LAYOUTS = """version: v1
mig-configs:
  all-1g.10gb:
  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}
"""


def test_config_maps_are_carried_over() -> None:
    found = converted(
        policy(
            devicePlugin__config={"name": "plugin", "default": "shared"},
            migManager__config={"name": "layouts", "default": "all-1g.10gb"},
            driver__kernelModuleConfig={"name": "parameters"},
        ),
        config_map("plugin", shared=SHARING, other="version: v1"),
        config_map("layouts", config__yaml=LAYOUTS),
        config_map("parameters", nvidia__conf="NVreg_EnableGpuFirmware=1\nfoo=1\n", nvidia_uvm__conf="x=1"),
    )
    said = values(found)
    assert said["plugin.migStrategy"] == "mixed"
    assert said["plugin.sharing.timeSlicing"] == {
        "renameByDefault": True,
        "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
    }
    assert said["mig.layout"] == "all-1g.10gb"
    assert said["driver.moduleParameters"] == {"NVreg_EnableGpuFirmware": 1}
    missing = {key.path: key.why for key in found.of(Verdict.MISSING)}
    assert "nvidia.yaml" in missing["shared: flags.plugin.deviceListStrategy"]
    assert "shared: flags.passDeviceSpecs" in missing
    assert "by label" in missing["other"]
    assert "no parameter" in missing["nvidia.conf"]
    assert "the module nvidia alone" in missing["nvidia_uvm.conf"]


def test_a_layout_that_grapnel_does_not_take_is_named_and_left_out() -> None:
    broken = LAYOUTS.replace("devices: all", "devices: some")
    found = converted(policy(migManager__config={"name": "l", "default": "all-1g.10gb"}), config_map("l", c=broken))
    assert "mig.config" not in values(found)
    assert "mig.layout" not in values(found), "there is no such layout then"
    assert "takes no such value" in key_of(found, "c").why


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        pytest.param((), "no ClusterPolicy", id="none"),
        pytest.param((policy(), policy()), "2 ClusterPolicies", id="two"),
        pytest.param((policy(driver__useNvidiaDriverCRD=True),), "leaves the driver to NVIDIADriver", id="no drivers"),
    ],
)
def test_objects_that_are_missing_are_named(objects: tuple[dict[str, Any], ...], message: str) -> None:
    with pytest.raises(OperatorObjectsError, match=message):
        converted(*objects)


def test_objects_of_other_kinds_are_named() -> None:
    other = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "gpu-cluster"}}
    (found,) = [key for key in converted(policy(), other).keys if key.source == "GPUCluster gpu-cluster"]
    assert found.verdict is Verdict.MISSING


def test_the_file_is_one_that_check_takes_and_says_where_each_key_is_from() -> None:
    found = converted(policy(gds={"enabled": True}))
    text = render_stack(found.stacks[0], found, found.of(Verdict.MISSING))
    stack, warnings = judge_stack(read_stack_text(text.encode(), "stack.yaml"))
    assert (stack.name, stack.spec.driver.version, stack.spec.runtime.adopt) == ("cluster-policy", "550.163.01", True)
    assert warnings == []
    assert "# - ClusterPolicy cluster-policy, spec.gds.enabled (true): grapnel does not install nvidia-fs" in text
    assert '# ClusterPolicy cluster-policy, spec.driver.version\n    version: "550.163.01"' in text


def test_what_an_object_says_stays_in_its_comment() -> None:
    found = converted(policy(driver__colour="green\nspec: {driver: {enabled: false}}\n"))
    text = render_stack(found.stacks[0], found, found.of(Verdict.MISSING))
    stack, _warnings = judge_stack(read_stack_text(text.encode(), "stack.yaml"))
    assert stack.spec.driver.enabled


SOCKET = {"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd/containerd.sock"}


def test_a_socket_of_k3s_or_rke2_is_said_to_be_of_one_of_them() -> None:
    """Without its configuration no engine was declared, and it was said that grapnel has no such value."""
    found = key_of(converted(policy(toolkit__env=[SOCKET])), "spec.toolkit.env[CONTAINERD_SOCKET]")
    assert found.verdict is Verdict.MISSING
    assert "declare runtime.engine: k3s, or rke2" in found.why


def test_a_socket_of_k3s_or_rke2_needs_nothing_beside_the_configuration_of_one() -> None:
    config = {"name": "CONTAINERD_CONFIG", "value": "/var/lib/rancher/rke2/agent/etc/containerd/config.toml.tmpl"}
    for env in ([SOCKET, config], [config, SOCKET]):
        found = converted(policy(toolkit__env=env))
        assert values(found)["runtime.engine"] == "rke2"
        assert key_of(found, "spec.toolkit.env[CONTAINERD_SOCKET]").verdict is Verdict.COVERED


def test_a_handler_that_was_the_default_says_who_loses_the_drivers_files() -> None:
    env = [{"name": name, "value": "true"} for name in ("CONTAINERD_SET_AS_DEFAULT", "NVIDIA_RUNTIME_SET_AS_DEFAULT")]
    found = converted(policy(toolkit__env=env))
    for each in env:
        key = key_of(found, f"spec.toolkit.env[{each['name']}]")
        assert key.verdict is Verdict.MISSING
        assert "have no runtimeClassName lose the driver's files where that default goes" in key.why
    off = converted(policy(toolkit__env=[{"name": "CONTAINERD_SET_AS_DEFAULT", "value": "false"}]))
    assert key_of(off, "spec.toolkit.env[CONTAINERD_SET_AS_DEFAULT]").verdict is Verdict.IDLE
