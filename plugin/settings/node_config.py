"""The daemon's configuration: `/etc/grapnel/node.json`, the contract `docs/contracts/node-config`.

Not here: what the values are used for. The file is parsed once and becomes one frozen value.
"""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugin.base.documents import parse_known, read_object, truth
from plugin.base.errors import ConfigError, os_reason
from plugin.devices.inventory import HostTree
from plugin.devices.naming import NamePattern, parse_resource_name
from plugin.devices.resources import OfferRules
from plugin.settings.memory_units import memory_units_to_json, parse_memory_units
from plugin.settings.model import DaemonSettings
from plugin.system.durable import read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from plugin.devices.sharing import ShareRule

SCHEMA = "grapnel.dev/node/v1alpha1"
DEFAULT_PATH = Path("/etc/grapnel/node.json")
DEFAULT_NVIDIA_PATH = Path("/etc/grapnel/nvidia.yaml")
_MAX_BYTES = 64 * 1024
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NODE_NAME = re.compile(rf"(?=.{{1,253}}\Z){_DNS_LABEL}(\.{_DNS_LABEL})*")
_CONFIG_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
IN_CLUSTER = "in-cluster"  # as a pod: by its service account
REGISTRATIONS = ("auto", "socket", "watcher")
DEVICE_PLUGIN, DRA, BOTH = INTERFACES = ("devicePlugin", "dra", "both")
LIMITS_OFF, LIMITS_PREFERRED, LIMITS_REQUIRED = MEMORY_LIMITS = ("off", "preferred", "required")
OVERUSE_REPORT, OVERUSE_EVICT = MEMORY_OVERUSE = ("report", "evict")
LABELS_AUTO, LABELS_FILE, LABELS_NODE, LABELS_FEATURE = LABELS = ("auto", "file", "node", "nodeFeature")
_NAMESPACE = re.compile(_DNS_LABEL)
_GPU = re.compile(r"(0|[1-9][0-9]{0,2})|GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"(?:(?P<four>[0-9.]{7,15})|\[(?P<six>[0-9A-Fa-f:.]{2,45})\]):(?P<port>[0-9]{1,5})")
_ADDRESS_FORM = 'must be "" (off) or an address in digits with a port, such as "127.0.0.1:9400" or "[::]:9400"'
_MAX_PORT = 65535


@dataclass(frozen=True)
class NodeConfig:
    """What the operator decided for this node. Every key may be left out."""

    resource: str = "nvidia.com/gpu"
    nvidia_config: Path | None = DEFAULT_NVIDIA_PATH
    nvidia_config_folder: Path | None = None  # the node's label names a file of it
    nvidia_config_default: str = ""  # the name where there is no label
    settings: DaemonSettings = field(default_factory=DaemonSettings)  # of other sources: the file has no key for it
    origin: str = field(default="", compare=False)  # the file that was read
    given: tuple[str, ...] = field(default=(), compare=False)  # keys that it has
    kubelet_root: Path = Path("/var/lib/kubelet")
    registration: str = "auto"
    interface: str = DEVICE_PLUGIN  # by which GPUs are given to pods
    claims: tuple[str, ...] = ()  # GPUs that are given by claims, with BOTH: indices and UUIDs
    dynamic_mig: bool = False  # MIG devices are made for claims, on GPUs in MIG mode
    compute_domains: bool = False  # the IMEX channel is given to claims of ComputeDomains
    in_pod: bool = False  # where no program of the host can be run: the file has no key for it
    hook_path: Path = Path("/usr/lib/grapnel/hook/grapnel-hook")
    hook_timeout_s: float = 30.0
    dev_root: Path = Path("/dev")
    sys_root: Path = Path("/sys")
    proc_root: Path = Path("/proc")
    admin_socket: Path = Path("/run/grapnel/node.sock")
    state_folder: Path = Path("/var/lib/grapnel/node")
    refresh_s: float = 5.0
    retry_s: float = 15.0
    health_s: float = 30.0
    quiet_s: float = 300.0
    metrics_address: str = ""
    kubernetes_api: str = ""  # a kubeconfig's path, or IN_CLUSTER; "" is off
    node_name: str = ""
    cdi_folder: Path = Path("/var/run/cdi")  # where engines look for the devices of claims
    device_classes: Path = Path("/etc/grapnel/devices.d")
    memory_units: tuple[ShareRule, ...] = ()
    labels: str = LABELS_AUTO  # through what they reach the Node
    node_feature_namespace: str = "node-feature-discovery"
    memory_limits: str = LIMITS_PREFERRED  # of containers with units of memory, in the driver
    memory_overuse: str = OVERUSE_REPORT  # what follows where the driver limits no container
    overuse_grace_s: float = 120.0

    @property
    def interfaces(self) -> tuple[str, ...]:
        """By which GPUs are given to pods."""
        return (DEVICE_PLUGIN, DRA) if self.interface == BOTH else (self.interface,)

    @property
    def has_claims(self) -> bool:
        """Whether GPUs are given by claims, all of them or some."""
        return self.interface != DEVICE_PLUGIN

    @property
    def has_plugin(self) -> bool:
        """Whether GPUs are given by the device plugin, all of them or some."""
        return self.interface != DRA

    @property
    def patterns(self) -> tuple[NamePattern, ...]:
        """Which product is offered as which resource: what the settings say, else every GPU is `resource`."""
        return self.settings.patterns or (NamePattern("*", self.resource),)

    @property
    def host_tree(self) -> HostTree:
        """The machine's own files, where this configuration says that they are."""
        return HostTree(self.dev_root, self.sys_root, self.proc_root)

    @property
    def offer_rules(self) -> OfferRules:
        """What decides which device is offered as what."""
        decided = self.settings
        return OfferRules(self.patterns, decided.mig_strategy, decided.mig_patterns, decided.shares, decided.is_packed)

    @property
    def facts_path(self) -> Path:
        """Where the hook finds what NVML said: beside its inventory, in the folder of the socket."""
        return self.admin_socket.parent / "nvml.json"

    @property
    def mps_root(self) -> Path:
        """The folder below which control daemons of MPS have theirs: beside the admin socket, unless it is given."""
        return Path(self.settings.mps_root) if self.settings.mps_root else self.admin_socket.parent / "mps"

    def to_json(self) -> dict[str, object]:
        """Return the configuration in the form of the file, defaults included."""
        values = {key: getattr(self, attribute) for key, attribute in KEYS.items()}
        shown = {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
        lists = {"claims": list(self.claims), "memoryUnits": memory_units_to_json(self.memory_units)}
        return {"schema": SCHEMA, **shown, **lists}


KEYS = {
    "resource": "resource",
    "nvidiaConfigFile": "nvidia_config",
    "nvidiaConfigFolder": "nvidia_config_folder",
    "nvidiaConfigDefault": "nvidia_config_default",
    "kubeletRoot": "kubelet_root",
    "registration": "registration",
    "interface": "interface",
    "claims": "claims",
    "dynamicMig": "dynamic_mig",
    "computeDomains": "compute_domains",
    "hookPath": "hook_path",
    "hookTimeoutSeconds": "hook_timeout_s",
    "devRoot": "dev_root",
    "sysRoot": "sys_root",
    "procRoot": "proc_root",
    "adminSocket": "admin_socket",
    "stateFolder": "state_folder",
    "refreshSeconds": "refresh_s",
    "retrySeconds": "retry_s",
    "healthSeconds": "health_s",
    "quietSeconds": "quiet_s",
    "metricsAddress": "metrics_address",
    "kubernetesApi": "kubernetes_api",
    "nodeName": "node_name",
    "cdiFolder": "cdi_folder",
    "deviceClassesFolder": "device_classes",
    "memoryUnits": "memory_units",
    "memoryLimits": "memory_limits",
    "memoryOveruse": "memory_overuse",
    "overuseGraceSeconds": "overuse_grace_s",
    "labels": "labels",
    "nodeFeatureNamespace": "node_feature_namespace",
}


def _one_of(words: tuple[str, ...]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(value)

    return parse


def _gpus(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and _GPU.fullmatch(each) for each in value):
        raise ValueError('must be a list of GPUs: their indices in quotes, such as "0", or UUIDs')
    return tuple(value)


def _namespace(value: object) -> str:
    if not isinstance(value, str) or not _NAMESPACE.fullmatch(value):
        raise ValueError('must be the name of a namespace: small letters, digits and "-"')
    return value


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise ValueError("must be an absolute path")
    return Path(value)


def _config_name(value: object) -> str:
    if not isinstance(value, str) or (value and not _CONFIG_NAME.fullmatch(value)):
        raise ValueError('must be "" (none) or the name of a file of nvidiaConfigFolder, as a label can have it')
    return value


def _seconds(low: float, high: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise ValueError(f"must be a number of seconds from {low:g} to {high:g}")
        return float(value)

    return parse


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of `ADDRESS:PORT`; an IPv6 address is in brackets. Raises ValueError.

    The address is in digits: a name would have to be looked up, and could mean another address tomorrow.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(_ADDRESS_FORM)
    host, port = match["four"] or match["six"], int(match["port"])
    try:
        socket.inet_pton(socket.AF_INET if match["four"] else socket.AF_INET6, host)
    except OSError as error:
        raise ValueError(_ADDRESS_FORM) from error
    if not 1 <= port <= _MAX_PORT:
        raise ValueError(_ADDRESS_FORM)
    return host, port


def _listen_address(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(_ADDRESS_FORM)
    if value:
        split_address(value)
    return value


def _kubernetes_api(value: object) -> str:
    if not isinstance(value, str) or "\0" in value or not (value in {"", IN_CLUSTER} or value.startswith("/")):
        raise ValueError(f'must be "" (off), the absolute path of a kubeconfig, or "{IN_CLUSTER}"')
    return value


def _node_name(value: object) -> str:
    if not isinstance(value, str) or (value and not _NODE_NAME.fullmatch(value)):
        raise ValueError('must be "" (the host\'s name) or the name of a Node: small letters, digits, "-" and "."')
    return value


_PARSERS: dict[str, Callable[[object], object]] = {
    "resource": parse_resource_name,
    "nvidiaConfigFile": lambda value: None if value is None else _path(value),
    "nvidiaConfigFolder": lambda value: None if value is None else _path(value),
    "nvidiaConfigDefault": _config_name,
    "kubeletRoot": _path,
    "registration": _one_of(REGISTRATIONS),
    "interface": _one_of(INTERFACES),
    "claims": _gpus,
    "dynamicMig": truth,
    "computeDomains": truth,
    "hookPath": _path,
    "hookTimeoutSeconds": _seconds(1, 600),
    "devRoot": _path,
    "sysRoot": _path,
    "procRoot": _path,
    "adminSocket": _path,
    "stateFolder": _path,
    "refreshSeconds": _seconds(0.1, 300),
    "retrySeconds": _seconds(0.1, 3600),
    "healthSeconds": _seconds(0.1, 3600),
    "quietSeconds": _seconds(0.1, 86400),
    "metricsAddress": _listen_address,
    "kubernetesApi": _kubernetes_api,
    "nodeName": _node_name,
    "cdiFolder": _path,
    "deviceClassesFolder": _path,
    "memoryUnits": parse_memory_units,
    "memoryLimits": _one_of(MEMORY_LIMITS),
    "memoryOveruse": _one_of(MEMORY_OVERUSE),
    "overuseGraceSeconds": _seconds(10, 86400),
    "labels": _one_of(LABELS),
    "nodeFeatureNamespace": _namespace,
}


def _load(content: bytes | str, origin: str) -> dict[str, Any]:
    try:
        return read_object(content, _MAX_BYTES)
    except ValueError as error:
        hint = "check it with: python3 -m json.tool; an empty object {} means: all defaults"
        raise ConfigError(f"{origin}: {error}", hint) from error


def _unknown(key: str) -> str:
    lowered = {known.lower(): known for known in ("schema", *_PARSERS)}
    from difflib import get_close_matches  # noqa: PLC0415 - only for an error

    nearest = get_close_matches(key.lower(), lowered, n=1, cutoff=0)
    return f'unknown key {json.dumps(key[:64])}, the nearest one is "{lowered[nearest[0]]}"'


def parse_config(content: bytes | str, origin: str) -> NodeConfig:
    """Return the configuration of a JSON document; a ConfigError lists everything that is wrong with it."""
    document = _load(content, origin)
    given = tuple(key for key in document if key != "schema")
    values, problems = parse_known(document, _PARSERS)
    problems += [_unknown(key) for key in given if key not in _PARSERS]
    if document.get("schema", SCHEMA) != SCHEMA:
        problems.append(f'schema: must be "{SCHEMA}"')
    problems += _contradictions(values)
    if problems:
        raise ConfigError(f"{origin}: {'; '.join(problems)}", "the keys are described in docs/contracts/node-config")
    return NodeConfig(**{KEYS[key]: value for key, value in values.items()}, origin=origin, given=given)


def _contradictions(values: Mapping[str, Any]) -> Iterator[str]:
    interface = values.get("interface", DEVICE_PLUGIN)
    if interface in (DRA, BOTH) and not values.get("kubernetesApi"):
        yield f"interface: {interface} needs kubernetesApi, through which claims are read and devices published"
    if interface == BOTH and not values.get("claims"):
        yield "interface: both needs claims, the GPUs that are given by claims"
    if interface != BOTH and values.get("claims"):
        yield "claims needs interface: both: it divides the GPUs between two interfaces"
    if values.get("dynamicMig") and interface != DRA:
        yield "dynamicMig needs interface: dra: the device plugin offers MIG devices that are there"
    if values.get("computeDomains") and interface == DEVICE_PLUGIN:
        yield "computeDomains needs interface: dra, or both: a ComputeDomain gives its channel by claims"


def read_config(path: Path) -> NodeConfig:
    """Read the file; it must exist when it was named."""
    try:
        content = read_bounded(path, _MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {os_reason(error)}", "name another file with --config") from error
    return parse_config(content, str(path))


def find_config(path: Path | None) -> NodeConfig:
    """Read the named file; without a name the standard one, or the defaults where there is none."""
    if path is not None:
        return read_config(path)
    return read_config(DEFAULT_PATH) if DEFAULT_PATH.exists() else NodeConfig()
