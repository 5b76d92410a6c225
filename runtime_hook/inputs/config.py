"""Reads the hook's configuration, ``/etc/grapnel/hook.json`` (contract ``docs/contracts/hook-config``).

A missing file means the defaults, which are the strictest reading. Anything doubtful refuses: the file decides who
gets a GPU.
"""

from __future__ import annotations

from runtime_hook.base.deadline import DEFAULT_TIMEOUT_S
from runtime_hook.base.document import Document
from runtime_hook.base.errors import ConfigError
from runtime_hook.base.jsonfast import loads
from runtime_hook.base.reading import read_regular, read_trusted
from runtime_hook.base.values import value

CONFIG_PATH = "/etc/grapnel/hook.json"
CONFIG_SCHEMA = "grapnel.dev/hook-config/v1alpha1"
INVENTORY_PATH = "/run/grapnel/inventory.json"
ENTITLEMENT_KUBELET = "kubelet"
ENTITLEMENT_ENV = "env"
ENTITLEMENT_CDI = "cdi"  # never in the file: an option of the hook that our CDI file adds
ENTITLEMENT_GPUS = "gpus"  # nor is this: an option of the hook that Docker starts for --gpus
LOG_WORDS = ("auto", "journal", "syslog", "none")
# NVIDIA's names, in the order in which they are reported.
DRIVER_CAPABILITIES = ("compute", "utility", "video", "graphics", "display", "ngx", "compat32")
# NVIDIA's words (cuda-compat-mode); its modes hook and mount are older ways to the same end.
CUDA_COMPAT_LDCONFIG = "ldconfig"
CUDA_COMPAT_DISABLED = "disabled"
MAX_TIMEOUT_S = 300

_KEYS = (
    "schema",
    "entitlement",
    "supportedDriverCapabilities",
    "acceptEnvvarUnprivileged",
    "acceptVolumeMounts",
    "acceptCdiAnnotations",
    "swarmResources",
    "disableRequire",
    "ignoreImexChannelRequests",
    "rules",
    "cudaCompat",
    "inventory",
    "log",
    "timeoutS",
    "cdi",
)
_RULE_DECISIONS = ("allow", "deny")
_RULE_KEYS = (
    "decision",
    "namespaces",
    "users",
    "capabilities",
    "acceptEnvvarUnprivileged",
    "acceptVolumeMounts",
)
_LIMIT_BYTES = 1 << 20


@value
class Rule:
    """One rule; None leaves open what the node's own settings say, or matches every container."""

    allows: bool
    namespaces: tuple[str, ...] | None = None
    users: tuple[int, ...] | None = None
    capabilities: tuple[str, ...] | None = None
    accept_envvar_unprivileged: bool | None = None
    accept_volume_mounts: bool | None = None


@value
class HookConfig:
    """Settings of one node; ``policy.apply_rules`` makes of them what holds for one container.

    ``denial`` says why this container may have nothing, "" where it may.
    """

    entitlement: str = ENTITLEMENT_KUBELET
    supported_capabilities: tuple[str, ...] = ("compute", "utility")
    accept_envvar_unprivileged: bool = True
    accept_volume_mounts: bool = False
    accept_cdi_annotations: bool = False
    swarm_resources: tuple[str, ...] = ()
    disable_require: bool = False
    ignore_imex_channels: bool = False
    rules: tuple[Rule, ...] = ()
    denial: str = ""
    cuda_compat: str = CUDA_COMPAT_LDCONFIG
    inventory_path: str = INVENTORY_PATH
    log: str = "auto"
    timeout_s: int = DEFAULT_TIMEOUT_S
    cdi_path: str = ""
    driver_root: str = "/"

    def host_path(self, path: str) -> str:
        """Return where the host sees a path of the driver's files."""
        return path if self.driver_root == "/" else self.driver_root + path


def load_config(path: str = CONFIG_PATH, *, trusted: bool = True) -> HookConfig:
    """Read the configuration; ``trusted=False`` skips the ownership check (explaining someone's draft)."""
    read = read_trusted if trusted else read_regular
    try:
        data = read(path, _LIMIT_BYTES, ConfigError)
    except FileNotFoundError:
        if path != CONFIG_PATH:
            raise ConfigError(f"configuration {path} does not exist") from None
        return HookConfig()
    try:
        return parse_config(loads(data), path)
    except ValueError as reason:
        raise ConfigError(f"{path}: {reason}", "the file must be one JSON object") from reason


def with_changes(config: HookConfig, **changes: object) -> HookConfig:
    """Return settings of which some are others."""
    return HookConfig(**{**vars(config), **changes})


def parse_config(content: object, where: str) -> HookConfig:
    """Turn parsed JSON into settings; unknown keys and wrong types are refused."""
    document = Document(content, where, ConfigError)
    document.only(_KEYS)
    for key, found in document.content.items():
        if found is None:
            raise document.wrong(key, "set")
    if document.text("schema", CONFIG_SCHEMA) != CONFIG_SCHEMA:
        raise ConfigError(f"{where}: unknown schema {document.text('schema')}", f"known is {CONFIG_SCHEMA}")
    return HookConfig(
        entitlement=_entitlement(document),
        supported_capabilities=_capabilities(document),
        accept_envvar_unprivileged=document.flag("acceptEnvvarUnprivileged", default=True),
        accept_volume_mounts=document.flag("acceptVolumeMounts", default=False),
        accept_cdi_annotations=document.flag("acceptCdiAnnotations", default=False),
        swarm_resources=_variables(document, "swarmResources"),
        disable_require=document.flag("disableRequire", default=False),
        ignore_imex_channels=document.flag("ignoreImexChannelRequests", default=False),
        rules=_rules(document),
        cuda_compat=_cuda_compat(document),
        inventory_path=_absolute(document, "inventory", INVENTORY_PATH),
        log=_log_target(document),
        timeout_s=_timeout(document),
        cdi_path=_absolute(document, "cdi", "/") if "cdi" in document.content else "",
    )


def _entitlement(document: Document) -> str:
    known = (ENTITLEMENT_KUBELET, ENTITLEMENT_ENV)
    word = document.text("entitlement", ENTITLEMENT_KUBELET)
    if word not in known:
        raise ConfigError(f"{document.where}: entitlement {word} is unknown", f"known are {', '.join(known)}")
    return word


def _capabilities(document: Document) -> tuple[str, ...]:
    if "supportedDriverCapabilities" not in document.content:
        return HookConfig().supported_capabilities
    return read_capabilities(document, "supportedDriverCapabilities")


def read_capabilities(document: Document, key: str) -> tuple[str, ...]:
    """Return a list of driver capabilities in the order in which they are reported."""
    listed = document.texts(key)
    for word in listed:
        if word not in DRIVER_CAPABILITIES:
            known = ", ".join(DRIVER_CAPABILITIES)
            raise ConfigError(f"{document.where}: driver capability {word} is unknown", f"known are {known}")
    return tuple(word for word in DRIVER_CAPABILITIES if word in listed)


def _variables(document: Document, key: str) -> tuple[str, ...]:
    names = document.texts(key)
    for name in names:
        if not name or "=" in name or "\0" in name:
            raise ConfigError(f"{document.where}: {key}: {name!r} is no variable's name")
    return tuple(names)


def _rules(document: Document) -> tuple[Rule, ...]:
    return tuple(parse_rule(entry) for entry in document.children("rules"))


def parse_rule(entry: Document) -> Rule:
    """Read one rule of the configuration; unknown keys, null and wrong types are refused."""
    entry.only(_RULE_KEYS)
    for key, found in entry.content.items():
        if found is None:
            raise entry.wrong(key, "set")
    decision = entry.text("decision")
    if decision not in _RULE_DECISIONS:
        raise ConfigError(f"{entry.where}: decision {decision} is unknown", f"known are {', '.join(_RULE_DECISIONS)}")
    given = entry.content
    if decision == "deny" and set(given) - {"decision", "namespaces", "users"}:
        raise ConfigError(f"{entry.where}: a rule that denies has nothing else to say")
    return Rule(
        allows=decision == "allow",
        namespaces=_namespaces(entry) if "namespaces" in given else None,
        users=_users(entry) if "users" in given else None,
        capabilities=read_capabilities(entry, "capabilities") if "capabilities" in given else None,
        accept_envvar_unprivileged=_flag(entry, "acceptEnvvarUnprivileged"),
        accept_volume_mounts=_flag(entry, "acceptVolumeMounts"),
    )


def _namespaces(entry: Document) -> tuple[str, ...]:
    names = entry.texts("namespaces")
    if "" in names:
        raise ConfigError(f"{entry.where}: namespaces holds an empty name")
    return tuple(names)


def _users(entry: Document) -> tuple[int, ...]:
    users = []
    for user in entry.items("users"):
        if not isinstance(user, int) or isinstance(user, bool) or user < 0:
            raise entry.wrong("users", "a list of user ids")
        users.append(user)
    return tuple(users)


def _flag(entry: Document, key: str) -> bool | None:
    return entry.flag(key, default=False) if key in entry.content else None


def _cuda_compat(document: Document) -> str:
    known = (CUDA_COMPAT_LDCONFIG, CUDA_COMPAT_DISABLED)
    word = document.text("cudaCompat", CUDA_COMPAT_LDCONFIG)
    if word not in known:
        raise ConfigError(f"{document.where}: cudaCompat {word} is unknown", f"known are {', '.join(known)}")
    return word


def _absolute(document: Document, key: str, default: str) -> str:
    path = document.text(key, default)
    if not path.startswith("/") or "\0" in path:
        raise ConfigError(f"{document.where}: {key} {path!r} is not an absolute path")
    return path


def _log_target(document: Document) -> str:
    word = document.text("log", "auto")
    if word in LOG_WORDS or word.startswith("/"):
        return word
    known = ", ".join(LOG_WORDS)
    raise ConfigError(f"{document.where}: log {word!r} is unknown", f"known are {known}, or a socket's path")


def _timeout(document: Document) -> int:
    timeout_s = document.number("timeoutS", DEFAULT_TIMEOUT_S)
    if not 1 <= timeout_s <= MAX_TIMEOUT_S:
        raise ConfigError(f"{document.where}: timeoutS {timeout_s} is not between 1 and {MAX_TIMEOUT_S}")
    return timeout_s
