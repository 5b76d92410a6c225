"""Says what becomes of keys that are not carried over, by patterns. Pure: a table.

Keys are those of ClusterPolicy (nvidia.com/v1) and NVIDIADriver (nvidia.com/v1alpha1) as of gpu-operator's repository
at commit a22dbf67 (2026-08); those of an NVIDIADriver are looked up as if they stood below ``driver``.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from provision.planning.gpu_operator.model import Verdict

_POD: Final = "is about the operator's own pods: what grapnel has on a node are services"
_IMAGE: Final = "is about an image of the operator: grapnel installs packages, and deploys what comes with it"
_VGPU: Final = "grapnel has no drivers and licences of vGPU"
_VM: Final = "grapnel gives GPUs to containers, not to virtual machines: leave such nodes to the operator"
_ENV: Final = "grapnel's programs do not read variables of NVIDIA's containers"
_OPTION: Final = "grapnel's programs do not take options of NVIDIA's containers"
NODE_FILE: Final = (
    "the node daemon reads NVIDIA's settings as variables of its service, and in /etc/grapnel/nvidia.yaml as long as "
    "the declaration says nothing of resources, sharing and migStrategy: docs/migrate.md"
)
_NO_MAP: Final = "its ConfigMap is not among the objects: add it, and try again"
_MONITOR: Final = "have your Prometheus scrape the node daemons and the controller: docs/metrics.md"
_DRAIN: Final = "grapnel evicts the pods that use a GPU, and no others: `rollout.drain` says how"
DEFAULT_GOES: Final = (
    "grapnel makes no handler the engine's default: pods that ask for a GPU and have no runtimeClassName lose the "
    "driver's files where that default goes; give them a `runtimeClassName` before their node goes over"
)
ENGINE_IS_SAID: Final = "another variable says which engine it is"
K3S_OR_RKE2: Final = "k3s and RKE2 have the same socket: declare runtime.engine: k3s, or rke2"

_DOMAINS: Final = (
    "declare `plugin.computeDomains: true` where nvidia-imex is a service of the host: docs/dra/domains.md; else let "
    "NVIDIA's DRA driver go on for them, with resources.gpus.enabled=false"
)
_SHARES: Final = "`plugin.sharing` of the stack says how GPUs are shared, by claims as well: docs/dra.md"
_BY_CLAIM: Final = "what a claim's GpuConfig asks for is served without a gate: docs/dra.md"
_MADE: Final = (
    "declare `plugin.dynamicMig: true`, and a `mig.layout` that has MIG mode on: GPUs that are not in it stay whole"
)

# Of the chart of NVIDIA's DRA driver (deployments/helm/dra-driver-nvidia-gpu/values.yaml, 0.5.0).
_DRA_TABLE: Final = (
    ("dra.nvidiaDriverRoot", Verdict.COVERED, "the driver is installed on the host, in its packages' places"),
    ("dra.nvidiaCDIHookPath", Verdict.COVERED, "grapnel's own hook is in its CDI file"),
    ("dra.altProcDevices", Verdict.MISSING, "grapnel reads the kernel's own list of devices alone"),
    ("dra.gpuResourcesEnabledOverride", Verdict.COVERED, "no device plugin has the same GPUs: one daemon serves both"),
    ("dra.consumableShares", Verdict.MISSING, _SHARES),
    ("dra.resourceApiVersion", Verdict.MISSING, "resource.k8s.io/v1 is spoken, from Kubernetes 1.34 on"),
    ("dra.resources.gpus.*", Verdict.COVERED, "GPUs are not given by claims"),
    ("dra.resources.computeDomains.*", Verdict.MISSING, _DOMAINS),
    ("dra.featureGates.NVMLDeviceHealthCheck", Verdict.COVERED, "the health of GPUs is always looked at"),
    ("dra.featureGates.DynamicMIG", Verdict.MISSING, _MADE),
    ("dra.featureGates.PassthroughSupport", Verdict.MISSING, _VM),
    ("dra.featureGates.ConsumableShares", Verdict.MISSING, _SHARES),
    ("dra.featureGates.TimeSlicingSettings", Verdict.COVERED, _BY_CLAIM),
    ("dra.featureGates.MPSSupport", Verdict.COVERED, _BY_CLAIM),
    *(
        (f"dra.featureGates.{name}", Verdict.MISSING, _DOMAINS)
        for name in (
            "HostManagedIMEXDaemon",
            "NodeLocalFabricIPC",
            "IMEXDaemonsWithDNSNames",
            "ComputeDomainCliques",
            "CrashOnNVLinkFabricErrors",
            "FabricManagerPartitioning",
        )
    ),
    ("dra.featureGates.*", Verdict.MISSING, "it is a gate of NVIDIA's programs, and means nothing to grapnel's"),
    ("dra.webhook.*", Verdict.COVERED, "what a claim asks for is judged when it is prepared"),
    ("dra.kubeletPlugin.nodeSelector*", Verdict.MISSING, "the stack's nodeSelector selects nodes: write it there"),
    ("dra.kubeletPlugin.affinity.*", Verdict.COVERED, "the stack's nodeSelector selects nodes"),
    ("dra.kubeletPlugin.metrics.*", Verdict.COVERED, "declare plugin.metricsAddress: docs/metrics.md"),
    ("dra.kubeletPlugin.*Path", Verdict.COVERED, "both are below plugin.kubeletRoot"),
    ("dra.*.env*", Verdict.MISSING, _ENV),
    ("dra.*", Verdict.COVERED, "is about pods and images of NVIDIA's DRA driver, which goes"),
)

# Whatever was not carried over. The first pattern that fits counts.
_TABLE: Final = (
    # operator
    ("operator.defaultRuntime", Verdict.COVERED, "the operator does not read it any more: declare runtime.engine"),
    ("operator.use_ocp_driver_toolkit", Verdict.MISSING, "OpenShift's nodes are not among grapnel's distributions"),
    ("operator.metrics.serviceMonitor.*", Verdict.MISSING, _MONITOR),
    ("operator.*", Verdict.COVERED, "is about the operator itself, which goes"),
    ("psp.*", Verdict.COVERED, "the namespace of the controller says what its Jobs may"),
    ("psa.*", Verdict.COVERED, "the namespace of the controller says what its Jobs may"),
    ("daemonsets.tolerations", Verdict.COVERED, "Jobs are bound to their nodes, and tolerate every taint"),
    ("daemonsets.*", Verdict.COVERED, _POD),
    ("hostPaths.rootFS", Verdict.COVERED, "what runs on a node runs on its host"),
    ("hostPaths.driverInstallDir", Verdict.COVERED, "the driver is installed on the host, in its packages' places"),
    # virtual machines
    ("sandboxWorkloads.*", Verdict.MISSING, _VM),
    ("vgpuManager.*", Verdict.MISSING, _VM),
    ("vgpuDeviceManager.*", Verdict.MISSING, _VM),
    ("vfioManager.*", Verdict.MISSING, _VM),
    ("sandboxDevicePlugin.*", Verdict.MISSING, _VM),
    ("kata*", Verdict.MISSING, _VM),
    ("ccManager.*", Verdict.MISSING, "grapnel does not set GPUs into confidential-computing mode"),
    # driver
    ("driver.manager.env*", Verdict.MISSING, "the driver manager's work is the rollout's: `rollout.drain`"),
    ("driver.manager.*", Verdict.COVERED, "the driver manager's work is the rollout's"),
    ("driver.useNvidiaDriverCRD", Verdict.COVERED, "each NVIDIADriver becomes a GpuStack"),
    ("driver.useOpenKernelModules", Verdict.COVERED, "the operator does not read it any more: kernelModuleType counts"),
    (
        "driver.usePrecompiled",
        Verdict.MISSING,
        "`driver.source: canonical` has the signed modules of Ubuntu's archive; elsewhere nodes build it",
    ),
    (
        "driver.rdma.enabled",
        Verdict.MISSING,
        "`driver.companions` with peermem, beside all else that these nodes need; nothing tells that from the node",
    ),
    ("driver.rdma.useHostMofed", Verdict.COVERED, "network drivers are always the host's"),
    ("driver.licensingConfig.nlsEnabled", Verdict.COVERED, "it is about a licence of vGPU"),
    ("driver.licensingConfig.*", Verdict.MISSING, _VGPU),
    ("driver.virtualTopology*", Verdict.MISSING, _VGPU),
    ("driver.repoConfig.*", Verdict.MISSING, "`driver.repository` with url and key names a mirror"),
    ("driver.certConfig.*", Verdict.MISSING, "the node's own certificates count: put yours into its trust store"),
    ("driver.kernelModuleConfig.*", Verdict.MISSING, _NO_MAP),
    ("driver.secretEnv", Verdict.MISSING, _ENV),
    ("driver.env*", Verdict.MISSING, _ENV),
    ("driver.args", Verdict.MISSING, "`driver.moduleParameters` has parameters of the kernel module"),
    ("driver.*Probe.*", Verdict.COVERED, "the driver is verified on the node before its GPUs are offered again"),
    (
        "driver.upgradePolicy.autoUpgrade",
        Verdict.MISSING,
        "a changed declaration is rolled out; what holds that is `grapnel pause`, a window, or a wave with gate: hold",
    ),
    ("driver.upgradePolicy.drain.*", Verdict.MISSING, _DRAIN),
    ("driver.nodeAffinity", Verdict.MISSING, "the stack's nodeSelector may have matchExpressions: write them there"),
    ("driver.driverType", Verdict.MISSING, _VGPU),
    ("driver.default", Verdict.COVERED, "a Node that two stacks select belongs to neither: give each its own labels"),
    ("driver.labels*", Verdict.COVERED, _POD),
    ("driver.annotations*", Verdict.COVERED, _POD),
    ("driver.priorityClassName", Verdict.COVERED, _POD),
    ("driver.tolerations", Verdict.COVERED, "Jobs are bound to their nodes, and tolerate every taint"),
    ("driver.podSecurityContext.*", Verdict.COVERED, _POD),
    ("gds.*", Verdict.MISSING, "grapnel does not install nvidia-fs (GPUDirect Storage)"),
    (
        "gdrcopy.enabled",
        Verdict.MISSING,
        "`driver.companions` with gdrcopy, beside all else that these nodes need; nothing tells that from the node",
    ),
    # containers
    ("toolkit.enabled", Verdict.COVERED, "the hook takes its place, whoever installed it"),
    (
        "toolkit.installDir",
        Verdict.COVERED,
        "the toolkit's programs go with the operator: docs/migrate/gpu-operator.md",
    ),
    (
        "toolkit.env[[]ACCEPT_*",
        Verdict.MISSING,
        "what a container gets is what the device plugin answered, never what its image's environment says",
    ),
    ("toolkit.env[[]*SET_AS_DEFAULT[]]", Verdict.MISSING, DEFAULT_GOES),
    (
        "cdi.enabled",
        Verdict.COVERED,
        "devices come from the device plugin, files from the hook; CDI files are kept too",
    ),
    ("cdi.default", Verdict.COVERED, "the operator does not read it any more"),
    ("cdi.nriPluginEnabled", Verdict.MISSING, "management containers name the handler: there is no NRI plugin"),
    # what is offered, and told
    ("devicePlugin.mps.root", Verdict.COVERED, "control daemons of MPS are in /run/grapnel/mps"),
    ("devicePlugin.env*", Verdict.MISSING, NODE_FILE),
    ("devicePlugin.args", Verdict.MISSING, NODE_FILE),
    ("devicePlugin.config.*", Verdict.MISSING, _NO_MAP),
    (
        "gfd.*",
        Verdict.COVERED,
        "the node daemon sets these labels, by NFD's file or with plugin.kubernetesApi: docs/device-plugin/labels.md",
    ),
    ("migManager.enabled", Verdict.COVERED, "layouts are changed by the rollout"),
    ("migManager.config.default", Verdict.COVERED, "MIG stays as it is where no mig.layout is declared"),
    ("migManager.config.*", Verdict.MISSING, _NO_MAP),
    ("migManager.gpuClientsConfig.*", Verdict.COVERED, "who holds a GPU is found on the node, whatever it is called"),
    ("dcgm.*", Verdict.MISSING, "grapnel runs no host engine of DCGM; its node daemon asks NVML"),
    ("dcgmExporter.config.name", Verdict.MISSING, "which metrics there are is fixed: docs/metrics.md"),
    ("dcgmExporter.serviceMonitor.*", Verdict.MISSING, _MONITOR),
    ("dcgmExporter.service.*", Verdict.COVERED, "the node daemon is scraped at its node's address"),
    ("dcgmExporter.hpcJobMapping.*", Verdict.MISSING, "metrics name pods; jobs of other schedulers are not labels"),
    ("dcgmExporter.enablePod*", Verdict.MISSING, "metrics name pod, namespace and container, and no labels of pods"),
    ("dcgmExporter.podLabelAllowlistRegex", Verdict.MISSING, "metrics have no labels of pods"),
    ("nodeStatusExporter.*", Verdict.MISSING, "the controller's metrics say how nodes stand: docs/controller.md"),
    ("validator.*", Verdict.COVERED, "every change is verified on the node before its GPUs are offered again"),
    # of whatever part
    ("*.env*", Verdict.MISSING, _ENV),
    ("*.args", Verdict.MISSING, _OPTION),
    *((f"*.{name}", Verdict.COVERED, _IMAGE) for name in ("image", "repository", "version", "imagePullPolicy")),
    ("*.imagePullSecrets", Verdict.COVERED, _IMAGE),
    *((f"*.{name}*", Verdict.COVERED, _POD) for name in ("resources", "hostNetwork", "hostPID", "annotations")),
    ("*.hostPort", Verdict.COVERED, _POD),
)
UNKNOWN: Final = "this grapnel does not know the key: look it up in the operator's documentation"


def verdict_of(path: str) -> tuple[Verdict, str]:
    """Return what becomes of a key that is not carried over, and why."""
    for pattern, verdict, why in (*_DRA_TABLE, *_TABLE):
        if fnmatchcase(path, pattern):
            return verdict, why
    return Verdict.MISSING, UNKNOWN
