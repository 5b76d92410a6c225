"""Applies the node's rules to one container: may it have GPUs, and how may it ask. Pure.

The first rule that matches a container decides. Where there are rules and none matches, the answer is no.
"""

from __future__ import annotations

from runtime_hook.base.errors import one_line
from runtime_hook.inputs.config import HookConfig, Rule, with_changes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.inputs.bundle import ContainerConfig
    from runtime_hook.inputs.origin import Origin


def apply_rules(config: HookConfig, container: ContainerConfig, origin: Origin) -> HookConfig:
    """Return the settings that hold for one container.

    What a rootless engine writes of namespaces is its user's own word, and does not count.
    """
    if not config.rules:
        return config
    owner = container.engine_user
    namespace, user = (origin.namespace, container.user) if owner is None else ("", owner)
    number = next((number for number, rule in enumerate(config.rules) if _matches(rule, namespace, user)), -1)
    if number < 0:
        return with_changes(config, denial=f"no rule allows GPUs for {_who(namespace, user)}")
    rule = config.rules[number]
    if not rule.allows:
        return with_changes(config, denial=f"rules[{number}] denies GPUs for {_who(namespace, user)}")
    return _narrow(config, rule)


def _matches(rule: Rule, namespace: str, user: int) -> bool:
    if rule.users is not None and user not in rule.users:
        return False
    return rule.namespaces is None or namespace in rule.namespaces


def _who(namespace: str, user: int) -> str:
    return f"namespace {one_line(namespace, 100)}" if namespace else f"user {user}, outside any namespace"


def _narrow(config: HookConfig, rule: Rule) -> HookConfig:
    capabilities, envvar, mounts = rule.capabilities, rule.accept_envvar_unprivileged, rule.accept_volume_mounts
    allowed = config.supported_capabilities if capabilities is None else capabilities
    return with_changes(
        config,
        supported_capabilities=tuple(word for word in config.supported_capabilities if word in allowed),
        accept_envvar_unprivileged=config.accept_envvar_unprivileged if envvar is None else envvar,
        accept_volume_mounts=config.accept_volume_mounts if mounts is None else mounts,
    )
