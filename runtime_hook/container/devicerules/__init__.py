"""Evaluates the device rules of a container's configuration, and adds rules to its device cgroup.

Only ``env`` mode sets rules. Rules that a hook adds are lost when the runtime's manager writes its own again (for
example at ``systemctl daemon-reload`` with systemd cgroups): with Kubernetes they belong in the configuration.
``hierarchy`` finds the container's group, ``v1`` and ``v2`` change its rules: files there, a BPF program here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from runtime_hook.inputs.bundle import DeviceRule

    class DeviceRules(Protocol):
        """Where the rules of one container are kept. A rule reads like ``c 195:0 rw``."""

        def allow(self, rules: tuple[str, ...]) -> None:
            """Add all rules, or none."""
            ...

        def deny(self, rules: tuple[str, ...]) -> None:
            """Take the rules away that were added last."""
            ...


_ANY = -1


def is_allowed(rules: Sequence[DeviceRule], major: int, minor: int) -> bool:
    """Tell whether rules, applied in their order, leave a character device readable and writable.

    Without any rule nothing is known to be allowed.
    """
    missing = {"r", "w"}
    for rule in rules:
        if rule.type not in {"a", "c"} or rule.major not in {_ANY, major} or rule.minor not in {_ANY, minor}:
            continue
        if rule.allow:
            missing.difference_update(rule.access)
        else:
            missing.update(set(rule.access) & {"r", "w"})
    return not missing


class Unrestricted:
    """The rules of a container that has none: every device is allowed already."""

    def allow(self, rules: tuple[str, ...]) -> None:
        """Do nothing."""

    def deny(self, rules: tuple[str, ...]) -> None:
        """Do nothing."""
