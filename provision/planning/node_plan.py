"""Defines the node plan: what one node needs, in order of execution, with a reason and a disruption class each.

Values only; the contract is ``docs/contracts/node-plan``. How a plan is shown belongs to ``provision.report``, how it
is applied to the roles.
"""

from __future__ import annotations

import stat
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec

from provision.planning.driver_change import DriverChange

SYSTEM_PYTHON: Final = "/usr/bin/python3"


class Disruption(StrEnum):
    """What an item costs the work that runs on the node, from nothing to everything."""

    NONE = "none"
    RELOAD = "reload"
    RESTART_RUNTIME = "restart-runtime"
    CHANGE_OVER = "change-over"
    DRAIN = "drain"
    REBOOT = "reboot"


class Role(StrEnum):
    """The Ansible roles that apply items, in the order in which they run."""

    DRIVER = "driver"
    RUNTIME = "runtime"
    TUNING = "tuning"
    KUBELET = "kubelet"
    NODE_DAEMON = "node_daemon"


class Action(StrEnum):
    """What is done to an item's target."""

    REPAIR = "repair"
    STAGE = "stage"
    WRITE = "write"
    KEEP = "keep"
    INSTALL = "install"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    REMOVE = "remove"
    RELOAD = "reload"
    LOAD = "load"
    HOLD = "hold"
    UNHOLD = "unhold"
    DEPLOY = "deploy"
    START = "start"
    RESTART = "restart"
    ENABLE = "enable"
    DISABLE = "disable"
    DIVIDE = "divide"
    SET = "set"
    REBOOT = "reboot"


EDITED = "edited"  # the state, before a write, of a file of ours that somebody edited


class Item(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One change; ``from_`` and ``to`` are versions, digests or states, null where there is none."""

    role: Role
    action: Action
    target: str
    from_: str | None = None
    to: str | None = None
    reason: str
    disruption: Disruption = Disruption.NONE
    deferred: bool = False


HAND_EDITED: Final = "hand-edited"  # the code of a problem: somebody has edited a file of grapnel's


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why the node cannot be brought to what is declared, and what a person can do about it."""

    code: str
    message: str
    hint: str


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """What the declaration leaves open about this node, what was chosen, and why."""

    key: str
    value: str
    reason: str


class FileContent(msgspec.Struct, frozen=True):
    """One file that a role writes; owner is always root.

    ``withheld``: this copy of the plan is for people, and the text is left out of it. It cannot be applied.
    """

    path: str
    content: str
    mode: Annotated[str, msgspec.Meta(pattern="^0[0-7]{3}$")] = "0644"
    withheld: bool = False

    @property
    def is_secret(self) -> bool:
        """Not everybody on the node may read the file, so nobody is shown its text."""
        return not int(self.mode, 8) & stat.S_IROTH


class DriverVariables(msgspec.Struct, frozen=True, kw_only=True):
    """Variables of the role ``driver``; an empty ``driver_archive`` leaves the installed program alone.

    ``driver_python``, like that of the other parts, starts its programs. ``driver_sources`` are files of the package
    manager that packages are found by. ``driver_change`` is None where only these are written, as nothing can be
    resolved before.
    """

    driver_version: str
    driver_archive: str = ""
    driver_digest: str = ""
    driver_python: str = SYSTEM_PYTHON
    driver_sources: tuple[FileContent, ...] = ()
    driver_change: DriverChange | None = None
    driver_change_id: str = ""
    driver_stage: bool = False
    driver_swap: bool = False


class RuntimeVariables(msgspec.Struct, frozen=True, kw_only=True):
    """Variables of the role ``runtime``; an empty ``runtime_hook_archive`` leaves the installed hook alone.

    With ``runtime_reload`` the service is reloaded where it would be restarted; ``runtime_service`` is empty for
    an engine that is no service. ``runtime_preconditions`` says what has to be on the node for a file to be
    written: by its path, the SHA-256 of other files by their paths ("" for one that must not exist). Where that is not
    so, the next pass has the file. ``runtime_sources`` are files of the package manager that packages are found by, and
    ``runtime_absent`` those that are not declared any more; ``runtime_stage`` are the packages, with their versions,
    that are to lie ready on the node, and no others (None leaves what does). ``runtime_packages`` are installed at
    ``runtime_versions``, or whichever there is, and what is there is exchanged. ``runtime_hold`` are packages that are
    held afterwards, and ``runtime_unhold`` those that grapnel lets go. ``runtime_selinux`` is the SHA-256 of the
    policy module that SELinux is to have, empty where it is off.
    """

    runtime_engine: str
    runtime_sources: tuple[FileContent, ...] = ()
    runtime_absent: tuple[str, ...] = ()
    runtime_stage: dict[str, str] | None = None
    runtime_packages: tuple[str, ...] = ()
    runtime_versions: dict[str, str] = {}
    runtime_hold: tuple[str, ...] = ()
    runtime_unhold: tuple[str, ...] = ()
    runtime_files: tuple[FileContent, ...] = ()
    runtime_preconditions: dict[str, dict[str, str]] = {}
    runtime_hook_archive: str = ""
    runtime_hook_digest: str = ""
    runtime_hook_python: str = SYSTEM_PYTHON
    runtime_selinux: str = ""
    runtime_service: str
    runtime_restart: bool = False
    runtime_reload: bool = False


class TuningVariables(msgspec.Struct, frozen=True, kw_only=True):
    """Variables of the role ``tuning``: settings of the running kernel, and arguments that it is started with.

    An empty ``tuning_boot_loader`` leaves the arguments alone; ``tuning_boot_id`` is the boot that is to end for them.
    ``tuning_forget``: nothing of the kernel's settings is grapnel's any more.
    """

    tuning_files: tuple[FileContent, ...] = ()
    tuning_absent: tuple[str, ...] = ()
    tuning_values: dict[str, str] = {}
    tuning_boot_loader: str = ""
    tuning_boot_arguments: tuple[str, ...] = ()
    tuning_boot_former: tuple[str, ...] = ()
    tuning_boot_id: str = ""
    tuning_forget: bool = False


class KubeletVariables(msgspec.Struct, frozen=True, kw_only=True):
    """Variables of the role ``kubelet``: its service, and where it reads its settings (empty: nowhere).

    ``kubelet_health`` is where it says whether it works. ``kubelet_forget``: nothing of it is grapnel's any more.
    """

    kubelet_unit: str
    kubelet_config: str = ""
    kubelet_config_dir: str = ""
    kubelet_root_dir: str = ""
    kubelet_health: str = ""
    kubelet_files: tuple[FileContent, ...] = ()
    kubelet_absent: tuple[str, ...] = ()
    kubelet_restart: bool = False
    kubelet_forget: bool = False


class NodeDaemonVariables(msgspec.Struct, frozen=True, kw_only=True):
    """Variables of the role ``node_daemon``; an empty ``node_daemon_archive`` leaves the installed daemon alone.

    ``node_daemon_absent`` are files to take away. With ``node_daemon_reload`` the daemon is reloaded where it would be
    restarted. ``node_daemon_mig_files`` is the MIG layout where the node lacks it; with ``node_daemon_mig_divide`` GPUs
    are divided as the layout has it. With ``node_daemon_set_gpus`` their modes, power limits and clocks are set as the
    node's file has them. ``node_daemon_timers`` run, and start at boot, where the daemon does. With
    ``node_daemon_as_pod`` the kubelet runs it, and its own unit is stopped.
    """

    node_daemon_archive: str = ""
    node_daemon_digest: str = ""
    node_daemon_python: str = SYSTEM_PYTHON
    node_daemon_files: tuple[FileContent, ...] = ()
    node_daemon_absent: tuple[str, ...] = ()
    node_daemon_enabled: bool
    node_daemon_as_pod: bool = False
    node_daemon_restart: bool = False
    node_daemon_reload: bool = False
    node_daemon_mig_files: tuple[FileContent, ...] = ()
    node_daemon_mig_divide: bool = False
    node_daemon_set_gpus: bool = False
    node_daemon_timers: tuple[str, ...] = ()


class Roles(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Variables of the roles that have something to do now; absent where a role has only deferred items or none."""

    driver: DriverVariables | None = None
    runtime: RuntimeVariables | None = None
    tuning: TuningVariables | None = None
    kubelet: KubeletVariables | None = None
    node_daemon: NodeDaemonVariables | None = None


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one node. A plan with problems is shown, never applied; one with ``warnings`` may be."""

    schema: Literal["grapnel.dev/plan/v1alpha1"] = "grapnel.dev/plan/v1alpha1"
    node: str
    items: tuple[Item, ...] = ()
    roles: Roles = Roles()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    derived: tuple[Derived, ...] = ()

    @property
    def is_empty(self) -> bool:
        """The node is as declared: nothing to do and nothing in the way."""
        return not self.items and not self.problems

    @property
    def disruption(self) -> Disruption:
        """The most disruptive class among the items."""
        order = list(Disruption)
        return max((item.disruption for item in self.items), key=order.index, default=Disruption.NONE)


def shown_plan(plan: NodePlan) -> NodePlan:
    """Return the plan as people may see it: without the texts of files that not everybody on the node may read."""
    shown = {
        role: msgspec.structs.replace(variables, **{f"{role}_files": _shown_files(getattr(variables, f"{role}_files"))})
        for role in ("runtime", "tuning", "kubelet", "node_daemon")
        if (variables := getattr(plan.roles, role)) is not None
    }
    return msgspec.structs.replace(plan, roles=msgspec.structs.replace(plan.roles, **shown))


def _shown_files(files: tuple[FileContent, ...]) -> tuple[FileContent, ...]:
    return tuple(msgspec.structs.replace(file, content="", withheld=True) if file.is_secret else file for file in files)


def role_variables(plan: NodePlan, role: Role) -> dict[str, Any]:
    """Ansible variables of one role as plain data; empty when the role has nothing to do."""
    variables = getattr(plan.roles, role.value)
    return {} if variables is None else dict(msgspec.to_builtins(variables))
