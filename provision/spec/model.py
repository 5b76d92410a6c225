"""Defines what can be declared: GpuStack, its sections, their defaults and their limits.

The one truth: the JSON schema, the file that `grapnel init` writes, the checks of the loader and their
messages are all derived from these types. Every key is described in one sentence; `extra["expected"]` says in
words what a pattern says in signs. No reading, no merging and no rule across keys here.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

API_VERSION: Final = "grapnel.dev/v1alpha1"
KIND: Final = "GpuStack"


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A mapping of the declaration: unknown keys are errors, keys are camelCase in the file.

    `frozen` is repeated in every section for type checkers, `kw_only` because it is not inherited.
    """


class DriverSource(Enum):
    """Where the driver's packages come from."""

    DISTRIBUTION = "distribution"


class KernelModule(Enum):
    """Who provides the kernel module, and which flavour of it."""

    NONE = "none"
    PROPRIETARY = "proprietary"
    OPEN = "open"


class Capability(Enum):
    """A set of the driver's user-space libraries and tools, in NVIDIA's words."""

    COMPUTE = "compute"
    UTILITY = "utility"
    GRAPHICS = "graphics"
    VIDEO = "video"
    DISPLAY = "display"
    NGX = "ngx"
    COMPAT32 = "compat32"


class Engine(Enum):
    """The container engine of a node."""

    CONTAINERD = "containerd"
    CRIO = "crio"
    DOCKER = "docker"
    PODMAN = "podman"


class Entitlement(Enum):
    """What gives a container its GPU."""

    KUBELET = "kubelet"
    ENV = "env"


class TaintEffect(Enum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"


def _text(pattern: str, expected: str, example: str, *, longest: int | None = None) -> Meta:
    """Return the limits of a text: its pattern, and the same for people as "what it is: how it is written"."""
    return Meta(pattern=f"^{pattern}$", max_length=longest, examples=[example], extra={"expected": expected})


def _doc(description: str, **schema: Any) -> Meta:  # noqa: ANN401 - JSON schema keywords are of any type
    """Return the sentence that documents a key."""
    return Meta(description=description, extra_json_schema=schema or None)


DriverVersion = Annotated[
    str,
    _text(
        r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{2})?",
        "a driver version: all parts of the upstream version, without the distribution's revision",
        "550.163.01",
        longest=12,
    ),
]
# RFC 1123 label: names of namespaces and of runtime class handlers.
DnsLabel = Annotated[
    str,
    _text(_LABEL, "a DNS label: lower-case letters, digits and '-', 63 at most", "nvidia", longest=63),
]
# Kubernetes wants a domain in an extended resource's name; a name without one is a resource of its own.
ResourceName = Annotated[
    str,
    _text(
        rf"{_DOMAIN}\.{_LABEL}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?",
        "a qualified name: a domain, '/', and a name of 63 letters, digits, '-', '_' or '.' at most",
        "nvidia.com/gpu",
        longest=253,
    ),
]
LabelKey = Annotated[
    str,
    _text(
        rf"({_DOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?",
        "a label key: 63 letters, digits, '-', '_' or '.' at most, which a domain and '/' may precede",
        "example.com/pool",
        longest=317,
    ),
]
LabelValue = Annotated[
    str,
    _text(
        f"({_NAME})?",
        "a label value: 63 letters, digits, '-', '_' or '.' at most, or nothing",
        "training",
        longest=63,
    ),
]
# One for all nodes of a fleet, so it is every address of a node or none but its own.
ListenAddress = Annotated[
    str,
    _text(
        r"(0\.0\.0\.0|127\.0\.0\.1|\[::1?\]):"
        r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])",
        "an address and a port: 0.0.0.0, [::], 127.0.0.1 or [::1], ':' and a number up to 65535",
        "0.0.0.0:9400",
    ),
]
_PATH = r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._+@-]+)+"
_PATH_RULE = "an absolute path: below '/', without '..', spaces or a trailing '/'"
KubeconfigPath = Annotated[str, _text(_PATH, _PATH_RULE, "/etc/kubernetes/kubelet.conf", longest=255)]
AbsolutePath = Annotated[
    str,
    _text(
        _PATH,
        _PATH_RULE,
        "/var/lib/kubelet",
        longest=255,
    ),
]
Percent = Annotated[str, _text("(100|[1-9][0-9]?)%", "a percentage: 1% to 100%", "25%")]
Count = Annotated[int, Meta(ge=1, le=100_000)]


class Metadata(Section, frozen=True, kw_only=True):
    """Names the declaration."""

    name: Annotated[DnsLabel, _doc("What messages and reports call this declaration.")] = "default"


class Driver(Section, frozen=True, kw_only=True):
    """The NVIDIA driver's user space on the node, as exact packages."""

    enabled: Annotated[bool, _doc("Whether grapnel manages the driver; false leaves the node's driver alone.")] = True
    source: Annotated[
        DriverSource, _doc("Where packages come from; distribution: the packages of the node's own system.")
    ] = DriverSource.DISTRIBUTION
    version: Annotated[
        DriverVersion | None,
        _doc("Upstream version of the driver, quoted; required while the driver is enabled."),
    ] = None
    kernel_module: Annotated[
        KernelModule, _doc("Flavour of the kernel module to install; none: something else provides it.")
    ] = KernelModule.NONE
    capabilities: Annotated[
        tuple[Capability, ...],
        _doc("Which of the driver's libraries and tools to install.", minItems=1, uniqueItems=True),
    ] = (Capability.COMPUTE, Capability.UTILITY)
    hold: Annotated[bool, _doc("Whether packages are held, so that no other upgrade moves them.")] = True


class Runtime(Section, frozen=True, kw_only=True):
    """The container engine, and how a container gets a GPU from it."""

    engine: Annotated[Engine, _doc("The node's container engine.")] = Engine.CONTAINERD
    install: Annotated[bool, _doc("Whether to install the distribution's engine where there is none.")] = True
    handler: Annotated[DnsLabel, _doc("Runtime handler to add to the engine; a RuntimeClass refers to it.")] = "nvidia"
    entitlement: Annotated[
        Entitlement,
        _doc(
            "What gives a container its GPU; kubelet: what the device plugin allocated; "
            "env: NVIDIA_VISIBLE_DEVICES, where every image is trusted."
        ),
    ] = Entitlement.KUBELET


class Plugin(Section, frozen=True, kw_only=True):
    """The node daemon, which offers the node's GPUs to the kubelet."""

    enabled: Annotated[bool, _doc("Whether the node daemon runs.")] = True
    resource: Annotated[ResourceName, _doc("Resource that pods ask for to get a GPU.")] = "nvidia.com/gpu"
    kubelet_root: Annotated[AbsolutePath, _doc("The kubelet's root directory on the node.")] = "/var/lib/kubelet"
    metrics_address: Annotated[
        ListenAddress | None, _doc("Where the node daemon serves metrics to Prometheus; null: nowhere.")
    ] = None
    kubernetes_api: Annotated[
        KubeconfigPath | None,
        _doc(
            "Kubeconfig on the node, such as the kubelet's, with which the node daemon puts labels, events and "
            "conditions on its Node object; null: it does not."
        ),
    ] = None


class Taint(Section, frozen=True, kw_only=True):
    """A taint of the Kubernetes node."""

    key: Annotated[LabelKey, _doc("Key of the taint.")]
    value: Annotated[LabelValue, _doc("Value of the taint.")] = ""
    effect: Annotated[TaintEffect, _doc("What happens to pods that do not tolerate the taint.")]


class Node(Section, frozen=True, kw_only=True):
    """The Kubernetes Node object of the machine."""

    labels: Annotated[dict[LabelKey, LabelValue], _doc("Labels to set on the Node object.")] = {}
    taints: Annotated[tuple[Taint, ...], _doc("Taints to set on the Node object.")] = ()


class Tenancy(Section, frozen=True, kw_only=True):
    """Who may use the GPUs."""

    namespaces: Annotated[
        tuple[DnsLabel, ...],
        _doc("Namespaces whose pods may have GPUs; an empty list: all of them.", uniqueItems=True),
    ] = ()


class Rollout(Section, frozen=True, kw_only=True):
    """How a change moves through the fleet."""

    max_unavailable: Annotated[
        Count | Percent,
        _doc("Most nodes that may be out of service at once: a number, or a percentage that is rounded up."),
    ] = "25%"
    max_parallel: Annotated[Count, _doc("Most nodes that are changed at the same time.")] = 1
    soak_minutes: Annotated[
        Annotated[int, Meta(ge=0, le=10_080)],
        _doc("How long a changed node must stay healthy before the next ones follow."),
    ] = 0
    drain_timeout_minutes: Annotated[
        Annotated[int, Meta(ge=1, le=1_440)],
        _doc("How long pods may take to leave a node before its change is given up."),
    ] = 5


class StackSpec(Section, frozen=True, kw_only=True):
    """What every node of a group should be: the effective declaration of one node has this type."""

    driver: Driver = Driver()
    runtime: Runtime = Runtime()
    plugin: Plugin = Plugin()
    node: Node = Node()
    tenancy: Tenancy = Tenancy()
    rollout: Rollout = Rollout()


class GpuStack(Section, frozen=True, kw_only=True):
    """The declaration, as it stands in grapnel.yaml."""

    api_version: Annotated[Literal["grapnel.dev/v1alpha1"], _doc("Version of this format.")]
    kind: Annotated[Literal["GpuStack"], _doc("Type of the document.")]
    metadata: Metadata = Metadata()
    spec: StackSpec
