"""What settings come to beside node.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugin.base.errors import ConfigError
from plugin.devices.allocation.answer import AnswerForm, DeviceList, Imex
from plugin.devices.health.model import Policy
from plugin.devices.naming import NamePattern
from plugin.settings.model import DaemonSettings, LabelSettings
from plugin.settings.node_config import NodeConfig
from plugin.settings.nvidia.document import FileSettings
from plugin.settings.nvidia.merge import merge, read_variables
from plugin.settings.nvidia.sharing import Share, Sharing, Strategy
from plugin.settings.resolve import Resolved, resolve


def resolved(config: NodeConfig | None = None, file: FileSettings | None = None, **variables: str) -> Resolved:
    return resolve(config or NodeConfig(), merge([read_variables(variables)]), file)


def test_nothing_given_is_all_defaults() -> None:
    assert resolved() == Resolved(NodeConfig(), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param(
            {"FAIL_ON_INIT_ERROR": "true"}, DaemonSettings(ends_without_driver=True), id="end without a driver"
        ),
        pytest.param(
            {"MIG_STRATEGY": "mixed"},
            DaemonSettings(mig_strategy="mixed"),
            id="hold back MIG",
        ),
        pytest.param(
            {"DP_DISABLE_HEALTHCHECKS": " 48, 79,,48", "DP_ENABLE_HEALTHCHECKS": "XIDS"},
            DaemonSettings(policy=Policy(skipped_xids=frozenset({48, 79}), enforces_all_xids=True)),
            id="which XID errors count",
        ),
        pytest.param(
            {"DP_DISABLE_HEALTHCHECKS": "all,48", "DP_ENABLE_HEALTHCHECKS": "63"},
            DaemonSettings(
                policy=Policy(
                    skipped_xids=frozenset({48}),
                    enforced_xids=frozenset({63}),
                    skips_all_xids=True,
                    skips_conditions=True,
                )
            ),
            id="no check but one",
        ),
        pytest.param(
            {"USE_NODE_FEATURE_API": "true", "GFD_OUTPUT_FILE": "/run/gfd"},
            DaemonSettings(labels=LabelSettings(file=None)),
            id="labels through the API leave no file",
        ),
        pytest.param(
            {"USE_NODE_FEATURE_API": "false"},
            DaemonSettings(labels=LabelSettings(is_file_wanted=True)),
            id="labels not through the API want a file",
        ),
        pytest.param(
            {"GFD_OUTPUT_FILE": "/run/gfd", "GFD_NO_TIMESTAMP": "1", "GFD_MACHINE_TYPE_FILE": "/etc/type"},
            DaemonSettings(labels=LabelSettings(Path("/run/gfd"), True, 60.0, False, "/etc/type")),
            id="a file of one's own",
        ),
        pytest.param(
            {"GFD_SLEEP_INTERVAL": "1h30m0.5s"}, DaemonSettings(labels=LabelSettings(pause_s=5400.5)), id="a duration"
        ),
        pytest.param({"GFD_SLEEP_INTERVAL": "1ms"}, DaemonSettings(labels=LabelSettings(pause_s=1.0)), id="too often"),
        pytest.param({"GFD_SLEEP_INTERVAL": "-5m"}, DaemonSettings(labels=LabelSettings(pause_s=1.0)), id="backwards"),
        pytest.param(
            {"GFD_SLEEP_INTERVAL": "infinite"}, DaemonSettings(labels=LabelSettings(pause_s=None)), id="labels once"
        ),
        pytest.param(
            {"GFD_ONESHOT": "true"}, DaemonSettings(labels=LabelSettings(pause_s=None)), id="labels in one shot"
        ),
        pytest.param({"MIG_STRATEGY": "none"}, DaemonSettings(), id="MIG as whole GPUs"),
        pytest.param(
            {"DEVICE_ID_STRATEGY": "index", "PASS_DEVICE_SPECS": "false"},
            DaemonSettings(answers=AnswerForm(by_index=True, has_nodes=False)),
            id="indices without nodes",
        ),
        pytest.param(
            {"DEVICE_LIST_STRATEGY": "cdi-annotations", "CDI_ANNOTATION_PREFIX": "example.com/"},
            DaemonSettings(
                answers=AnswerForm((DeviceList.CDI_ANNOTATIONS,), has_nodes=False, cdi_annotation_prefix="example.com/")
            ),
            id="CDI names nodes by itself",
        ),
        pytest.param(
            {"DEVICE_LIST_STRATEGY": "cdi-cri", "PASS_DEVICE_SPECS": "true"},
            DaemonSettings(answers=AnswerForm((DeviceList.CDI_CRI,), has_nodes=True)),
            id="CDI and nodes where somebody wants both",
        ),
        pytest.param(
            {"GDS_ENABLED": "true", "MOFED_ENABLED": "1", "GDRCOPY_ENABLED": "false"},
            DaemonSettings(answers=AnswerForm(variables=("NVIDIA_GDS", "NVIDIA_MOFED"))),
            id="extras",
        ),
        pytest.param(
            {"IMEX_CHANNEL_IDS": "0"},
            DaemonSettings(answers=AnswerForm(imex=Imex((0,)))),
            id="an IMEX channel",
        ),
        pytest.param(
            {"IMEX_CHANNEL_IDS": "0", "IMEX_REQUIRED": "true"},
            DaemonSettings(answers=AnswerForm(imex=Imex((0,), is_required=True))),
            id="an IMEX channel that must be there",
        ),
        pytest.param({"IMEX_REQUIRED": "true"}, DaemonSettings(), id="no IMEX channel to require"),
        pytest.param(
            {"DRIVER_ROOT_CTR_PATH": "/driver-root"},
            DaemonSettings(driver_root=Path("/driver-root")),
            id="mounted root",
        ),
    ],
)
def test_settings_become_decisions(variables: dict[str, str], expected: DaemonSettings) -> None:
    assert resolved(**variables).config.settings == expected


@pytest.mark.parametrize(
    ("variables", "dev_root", "origin"),
    [
        pytest.param({"NVIDIA_DEV_ROOT": "/a", "NVIDIA_DRIVER_ROOT": "/b"}, "/a/dev", "NVIDIA_DEV_ROOT", id="dev root"),
        pytest.param({"NVIDIA_DRIVER_ROOT": "/b"}, "/b/dev", "NVIDIA_DRIVER_ROOT", id="driver root in its place"),
        pytest.param({"NVIDIA_DEV_ROOT": "/"}, "/dev", "NVIDIA_DEV_ROOT", id="the host's own"),
        pytest.param({}, "/own/dev", None, id="node.json where nobody says otherwise"),
    ],
)
def test_device_nodes_are_looked_for_where_the_nearest_source_says(
    variables: dict[str, str], dev_root: str, origin: str | None
) -> None:
    result = resolved(NodeConfig(dev_root=Path("/own/dev")), **variables)
    assert (result.config.dev_root, result.origins.get("devRoot")) == (Path(dev_root), origin)


def test_the_kubelets_socket_moves_its_root() -> None:
    result = resolved(KUBELET_SOCKET="/data/kubelet/device-plugins/kubelet.sock")
    assert (result.config.kubelet_root, result.origins) == (Path("/data/kubelet"), {"kubeletRoot": "KUBELET_SOCKET"})


def test_a_socket_elsewhere_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"KUBELET_SOCKET: /tmp/kubelet.sock must end in /device-plugins/kubelet"):
        resolved(KUBELET_SOCKET="/tmp/kubelet.sock")


def test_everything_that_is_not_supported_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        resolved(DEVICE_DISCOVERY_STRATEGY="tegra", GDS_ENABLED="true", DEVICE_LIST_STRATEGY="cdi-cri")
    assert raised.value.message.count("is not supported") == 2


def test_a_share_of_what_is_not_offered_is_noted() -> None:
    file = FileSettings(
        gpus=(NamePattern("*", "nvidia.com/big"),),
        sharing=Sharing(
            (
                Strategy(
                    "mps",
                    (Share("mps", "nvidia.com/big", 2, origin="f:3"), Share("mps", "nvidia.com/gpu", 2, origin="f:4")),
                ),
            )
        ),
    )
    assert resolved(file=file).notes == ("f:4: 2 shares by mps change nothing: nvidia.com/gpu is not offered here",)


def test_mig_devices_are_not_shared_through_mps() -> None:
    shares = Sharing((Strategy("mps", (Share("mps", "nvidia.com/mig-1g.10gb", 2, origin="f:3"),)),))
    with pytest.raises(ConfigError, match=r"f:3: mps of .*: MIG devices are not shared"):
        resolved(file=FileSettings(sharing=shares), MIG_STRATEGY="mixed")


@pytest.mark.parametrize(
    ("strategy", "count"), [("envvar", 1), ("volume-mounts", 1), ("cdi-cri", 0), ("envvar,cdi-annotations", 0)]
)
def test_answers_without_device_nodes_are_warned_about_where_nobody_adds_them(strategy: str, count: int) -> None:
    variables = {"DEVICE_LIST_STRATEGY": strategy, "PASS_DEVICE_SPECS": "false"}
    notes = resolved(**variables).notes
    assert sum("PASS_DEVICE_SPECS: passDeviceSpecs false leaves device nodes" in note for note in notes) == count


@pytest.mark.parametrize(
    ("strategy", "count"), [("envvar", 0), ("volume-mounts", 0), ("cdi-cri", 1), ("envvar,cdi-annotations", 1)]
)
def test_cdi_names_come_with_what_containerd_1_7_needs_for_them(strategy: str, count: int) -> None:
    notes = resolved(DEVICE_LIST_STRATEGY=strategy).notes
    assert sum(note.startswith("DEVICE_LIST_STRATEGY: ") and "enable_cdi = true" in note for note in notes) == count


def test_a_requirement_without_imex_channels_is_noted() -> None:
    note = "IMEX_REQUIRED: required changes nothing: without IMEX channels there is nothing to require"
    assert resolved(IMEX_REQUIRED="true").notes == (note,)
    assert resolved(IMEX_REQUIRED="true", IMEX_CHANNEL_IDS="0").notes == ()


def test_what_changes_nothing_is_noted_where_somebody_gave_it() -> None:
    assert resolved(NVIDIA_CDI_HOOK_PATH="/opt/nvidia-ctk").notes == (
        "NVIDIA_CDI_HOOK_PATH: nvidiaCTKPath changes nothing: the CDI file is the hook's, and names the hook itself",
    )


@pytest.mark.parametrize("api", ["", "in-cluster"])
def test_pods_are_evicted_with_the_kubelets_credentials_alone(api: str) -> None:
    with pytest.raises(ConfigError, match="memoryOveruse evicts, and kubernetesApi is"):
        resolved(NodeConfig(memory_overuse="evict", kubernetes_api=api))
    kubelet = "/etc/kubernetes/kubelet.conf"
    assert resolved(NodeConfig(memory_overuse="evict", kubernetes_api=kubelet)).config.memory_overuse == "evict"
