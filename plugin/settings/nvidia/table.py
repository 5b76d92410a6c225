"""Every setting of NVIDIA's device plugin that is a flag, a variable or a key below `flags` and `imex` of a file.

From its `cmd/nvidia-device-plugin/main.go`, `cmd/gpu-feature-discovery/main.go` and `api/config/v1/flags.go` (0.19),
and what 0.20 adds. Lists of resources and shares are in `naming` and `sharing`: they are in files alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.settings.nvidia.kinds import BOOLEAN, CHANNELS, DURATION, PATH, TEXT, TEXTS, XIDS, choice, choices

if TYPE_CHECKING:
    from plugin.settings.nvidia.kinds import Value, ValueKind

HINT = "the settings are described in docs/migrate.md"
LABEL_FILE = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
CONFIG_LABEL = "nvidia.com/device-plugin.config"
FALLBACKS = ("named", "single", "empty")
LISTS = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
NOTHING_TO_REQUIRE = "without IMEX channels there is nothing to require"
_CDI_FILE = "the CDI file is the hook's, and names the hook itself"


@dataclass(frozen=True)
class Setting:
    """One setting. `name` is its path in a file; `default` is ours, None where it follows from other settings.

    `no_effect` says why a value changes nothing here; "" for a setting that has its effect.
    """

    name: str
    kind: ValueKind
    default: Value | None
    meaning: str
    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    in_file: bool = True
    no_effect: str = ""


SETTINGS = (
    Setting(
        "flags.migStrategy",
        choice("none", "single", "mixed"),
        "none",
        "GPUs in MIG mode: none offers them whole; single offers their slices as GPUs, mixed each profile as its own",
        ("mig-strategy",),
        ("MIG_STRATEGY",),
    ),
    Setting(
        "flags.failOnInitError",
        BOOLEAN,
        default=False,
        meaning="end with exit code 1 where there is no driver or GPU at the start, instead of waiting for it",
        flags=("fail-on-init-error",),
        variables=("FAIL_ON_INIT_ERROR",),
    ),
    Setting(
        "flags.nvidiaDriverRoot",
        PATH,
        "/",
        "the root of the driver's installation on the host",
        ("nvidia-driver-root", "driver-root"),
        ("NVIDIA_DRIVER_ROOT",),
    ),
    Setting(
        "flags.nvidiaDevRoot",
        PATH,
        None,
        "the root whose dev folder holds the device nodes; nvidiaDriverRoot where it is not given",
        ("dev-root", "nvidia-dev-root"),
        ("NVIDIA_DEV_ROOT",),
    ),
    Setting(
        "flags.gdrcopyEnabled",
        BOOLEAN,
        default=False,
        meaning="containers get NVIDIA_GDRCOPY=enabled",
        flags=("gdrcopy-enabled",),
        variables=("GDRCOPY_ENABLED",),
    ),
    Setting(
        "flags.gdsEnabled",
        BOOLEAN,
        default=False,
        meaning="containers get NVIDIA_GDS=enabled",
        flags=("gds-enabled",),
        variables=("GDS_ENABLED",),
    ),
    Setting(
        "flags.mofedEnabled",
        BOOLEAN,
        default=False,
        meaning="containers get NVIDIA_MOFED=enabled",
        flags=("mofed-enabled",),
        variables=("MOFED_ENABLED",),
    ),
    Setting(
        "flags.deviceDiscoveryStrategy",
        choice("auto", "nvml", "tegra"),
        "auto",
        "how GPUs are found: auto is nvml; tegra is not supported",
        ("device-discovery-strategy",),
        ("DEVICE_DISCOVERY_STRATEGY",),
    ),
    Setting(
        "flags.plugin.passDeviceSpecs",
        BOOLEAN,
        None,
        "whether the answer names device nodes; true unless CDI names the devices",
        ("pass-device-specs",),
        ("PASS_DEVICE_SPECS",),
    ),
    Setting(
        "flags.plugin.deviceListStrategy",
        choices(*LISTS),
        ("envvar",),
        "how the runtime is told which devices a container has",
        ("device-list-strategy",),
        ("DEVICE_LIST_STRATEGY",),
    ),
    Setting(
        "flags.plugin.deviceIDStrategy",
        choice("uuid", "index"),
        "uuid",
        "what devices are called in variables, mounts and CDI names",
        ("device-id-strategy",),
        ("DEVICE_ID_STRATEGY",),
    ),
    Setting(
        "flags.plugin.cdiAnnotationPrefix",
        TEXT,
        "cdi.k8s.io/",
        "the prefix of the annotation for cdi-annotations",
        ("cdi-annotation-prefix",),
        ("CDI_ANNOTATION_PREFIX",),
    ),
    Setting(
        "flags.plugin.containerDriverRoot",
        PATH,
        None,
        "where this process finds the driver's root; nvidiaDriverRoot where it is not given",
        ("driver-root-ctr-path", "container-driver-root"),
        ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
    ),
    Setting(
        "kubeletSocket",
        PATH,
        None,
        "the kubelet's socket; kubelet.sock in device-plugins below kubeletRoot where it is not given",
        ("kubelet-socket",),
        ("KUBELET_SOCKET",),
        in_file=False,
    ),
    Setting(
        "imex.channelIDs",
        CHANNELS,
        (),
        "IMEX channels that every container with a GPU gets: none, or 0",
        ("imex-channel-ids",),
        ("IMEX_CHANNEL_IDS",),
    ),
    Setting(
        "imex.required",
        BOOLEAN,
        default=False,
        meaning="whether GPUs are given away while an IMEX channel does not exist: true gives none",
        flags=("imex-required",),
        variables=("IMEX_REQUIRED",),
    ),
    Setting(
        "flags.plugin.sharedDevicesAllocationPolicy",
        choice("distributed", "packed"),
        "distributed",
        "which shared GPU a container gets",
        ("shared-devices-allocation-policy",),
        ("SHARED_DEVICES_ALLOCATION_POLICY",),
    ),
    Setting(
        "flags.mpsRoot",
        TEXT,
        "",
        "the folder of the MPS daemon",
        ("mps-root",),
        ("MPS_ROOT",),
    ),
    Setting(
        "flags.plugin.nvidiaCTKPath",
        TEXT,
        "/usr/bin/nvidia-ctk",
        "the program that NVIDIA's CDI file names",
        ("nvidia-cdi-hook-path", "nvidia-ctk-path"),
        ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
        no_effect=_CDI_FILE,
    ),
    Setting(
        "cdiFeatureFlags",
        TEXTS,
        (),
        "options of NVIDIA's CDI file",
        ("cdi-feature-flags",),
        ("CDI_FEATURE_FLAGS",),
        in_file=False,
        no_effect=_CDI_FILE,
    ),
    Setting(
        "cdiDisableHooks",
        TEXTS,
        (),
        "hooks that are left out of NVIDIA's CDI file",
        ("cdi-disable-hooks",),
        ("CDI_DISABLE_HOOKS",),
        in_file=False,
        no_effect=_CDI_FILE,
    ),
    Setting(
        "disableHealthChecks",
        XIDS,
        (),
        "XID errors that condemn no GPU: numbers, xids for every one, all for every check of a GPU that answers",
        variables=("DP_DISABLE_HEALTHCHECKS",),
        in_file=False,
    ),
    Setting(
        "enableHealthChecks",
        XIDS,
        (),
        "XID errors that condemn a GPU whatever disableHealthChecks and their class say: numbers, or all",
        variables=("DP_ENABLE_HEALTHCHECKS",),
        in_file=False,
    ),
    Setting(
        "flags.useNodeFeatureAPI",
        BOOLEAN,
        default=None,
        meaning="true leaves labels in a NodeFeature object (needs kubernetesApi), and no file; false: in the file",
        flags=("use-node-feature-api",),
        variables=("USE_NODE_FEATURE_API",),
    ),
    Setting(
        "flags.gfd.oneshot",
        BOOLEAN,
        default=False,
        meaning="make labels once and leave them, also when the daemon ends",
        flags=("oneshot",),
        variables=("GFD_ONESHOT",),
    ),
    Setting(
        "flags.gfd.noTimestamp",
        BOOLEAN,
        default=False,
        meaning="leave gfd.timestamp out",
        flags=("no-timestamp",),
        variables=("GFD_NO_TIMESTAMP",),
    ),
    Setting(
        "flags.gfd.sleepInterval",
        DURATION,
        "60s",
        "how often labels and their file are made sure of; infinite is oneshot. New GPUs are seen at once",
        ("sleep-interval",),
        ("GFD_SLEEP_INTERVAL",),
    ),
    Setting(
        "flags.gfd.outputFile",
        PATH,
        LABEL_FILE,
        "the file with the labels, for Node Feature Discovery; the default one only where its folder exists",
        ("output-file", "output"),
        ("GFD_OUTPUT_FILE",),
    ),
    Setting(
        "flags.gfd.machineTypeFile",
        PATH,
        None,
        "the file that names the machine; class/dmi/id/product_name below sysRoot where it is not given",
        ("machine-type-file",),
        ("GFD_MACHINE_TYPE_FILE",),
    ),
    # The rest are of the config-manager beside NVIDIA's plugin (`cmd/config-manager/main.go`): this process, too.
    Setting(
        "configFolder",
        PATH,
        None,
        "the folder of the files that the node's label chooses from; nvidiaConfigFolder where it is not given",
        ("config-file-srcdir",),
        ("CONFIG_FILE_SRCDIR",),
        in_file=False,
    ),
    Setting(
        "defaultConfig",
        TEXT,
        None,
        "the file's name where the node has no label; nvidiaConfigDefault where it is not given",
        ("default-config",),
        ("DEFAULT_CONFIG",),
        in_file=False,
    ),
    Setting(
        "configFallbacks",
        choices(*FALLBACKS),
        (),
        "without label and default: the file called default (named), the only one (single), none (empty)",
        ("fallback-strategies",),
        ("FALLBACK_STRATEGIES",),
        in_file=False,
    ),
    Setting(
        "configLabel",
        TEXT,
        CONFIG_LABEL,
        "the label of the node that names the file",
        ("node-label",),
        ("NODE_LABEL",),
        in_file=False,
    ),
)
# Feature discovery's own names of settings that the plugin has, too: here both are one process.
NOT_READ = {
    "GFD_MIG_STRATEGY": "MIG_STRATEGY",
    "GFD_FAIL_ON_INIT_ERROR": "FAIL_ON_INIT_ERROR",
    "GFD_USE_NODE_FEATURE_API": "USE_NODE_FEATURE_API",
    "GFD_CONFIG_FILE": "CONFIG_FILE",
}
BY_NAME = {setting.name: setting for setting in SETTINGS}
CONFIG_FILE_FLAG = "config-file"
CONFIG_FILE_VARIABLE = "CONFIG_FILE"
