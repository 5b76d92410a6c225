"""Rules of the node's configuration: which namespaces and users may have GPUs, and how they may ask.

Pure but for ``settle_here``, which asks the kernel who runs this process. The first rule that matches a
container decides. Where there are rules and none matches, the answer is no.
"""

from __future__ import annotations

from runtime_hook.config import HookConfig, read_capabilities
from runtime_hook.errors import ConfigError, one_line
from runtime_hook.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.bundle import ContainerConfig
    from runtime_hook.document import Document
    from runtime_hook.origin import Origin

_DECISIONS = ("allow", "deny")
_KEYS = (
    "decision",
    "namespaces",
    "users",
    "capabilities",
    "acceptEnvvarUnprivileged",
    "acceptVolumeMounts",
)


@value
class Rule:
    """One rule; None leaves open what the node's own settings say, or matches every container."""

    allows: bool
    namespaces: tuple[str, ...] | None = None
    users: tuple[int, ...] | None = None
    capabilities: tuple[str, ...] | None = None
    accept_envvar_unprivileged: bool | None = None
    accept_volume_mounts: bool | None = None


def parse_rule(entry: Document) -> Rule:
    """Read one rule of the configuration; unknown keys, null and wrong types are refused."""
    entry.only(_KEYS)
    for key, found in entry.content.items():
        if found is None:
            raise entry.wrong(key, "set")
    decision = entry.text("decision")
    if decision not in _DECISIONS:
        raise ConfigError(f"{entry.where}: decision {decision} is unknown", f"known are {', '.join(_DECISIONS)}")
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


def settle(config: HookConfig, container: ContainerConfig, origin: Origin, owner: int | None) -> HookConfig:
    """Return the settings that hold for one container. ``owner`` is who runs a rootless engine, None for root's.

    What a rootless engine writes of namespaces is its user's own word, and does not count.
    """
    if not config.rules:
        return config
    namespace, user = (origin.namespace, container.user) if owner is None else ("", owner)
    number = next((number for number, rule in enumerate(config.rules) if _matches(rule, namespace, user)), -1)
    if number < 0:
        return _with(config, denial=f"no rule allows GPUs for {_who(namespace, user)}")
    rule = config.rules[number]
    if not rule.allows:
        return _with(config, denial=f"rules[{number}] denies GPUs for {_who(namespace, user)}")
    return _narrow(config, rule)


def settle_here(config: HookConfig, container: ContainerConfig) -> HookConfig:
    """Return the settings that hold for one container that this process is started for."""
    from runtime_hook.origin import find_origin, rootless_owner  # noqa: PLC0415 - start-up budget: rules are read always

    return settle(config, container, find_origin(container.annotations, container.cgroup), rootless_owner())


def _matches(rule: Rule, namespace: str, user: int) -> bool:
    if rule.users is not None and user not in rule.users:
        return False
    return rule.namespaces is None or namespace in rule.namespaces


def _who(namespace: str, user: int) -> str:
    return f"namespace {one_line(namespace, 100)}" if namespace else f"user {user}, outside any namespace"


def _narrow(config: HookConfig, rule: Rule) -> HookConfig:
    capabilities, envvar, mounts = rule.capabilities, rule.accept_envvar_unprivileged, rule.accept_volume_mounts
    allowed = config.supported_capabilities if capabilities is None else capabilities
    return _with(
        config,
        supported_capabilities=tuple(word for word in config.supported_capabilities if word in allowed),
        accept_envvar_unprivileged=config.accept_envvar_unprivileged if envvar is None else envvar,
        accept_volume_mounts=config.accept_volume_mounts if mounts is None else mounts,
    )


def _with(config: HookConfig, **changes: object) -> HookConfig:
    return HookConfig(**{**vars(config), **changes})
