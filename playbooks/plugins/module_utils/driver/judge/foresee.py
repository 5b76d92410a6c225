"""Says what a way back or a removal changes on a node, before it is begun, and what keeps it from that.

What is left to do is decided by the functions that the steps of the run call themselves, about the same target: what is
shown is what is done. In the order of the steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.before.way_back import files_to_put_back
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import NO_DRIVER
from ansible_collections.grapnel.node.plugins.module_utils.driver.initramfs import commands_to_rebuild
from ansible_collections.grapnel.node.plugins.module_utils.driver.module_files import find_module, lacking_modules
from ansible_collections.grapnel.node.plugins.module_utils.driver.reboot import other_kernel
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import is_managed
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError
from ansible_collections.grapnel.node.plugins.module_utils.driver.removal import RECORD, find_leftovers
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap import steps
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.actions import current_dkms, plan_work
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.run import REMOVE
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import StepError
from ansible_collections.grapnel.node.plugins.module_utils.kernel import exchange as kernel_module
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import is_loaded
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import DAEMON_UNIT, unit_state
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import Node
    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_KERNELS = "/lib/modules"
_CAME = "came with a driver of grapnel's"
_BEFORE = "as it was before"
_OPEN = "it keeps the driver open"


@dataclass(frozen=True)
class Effect:
    """One thing that is done, as people read it."""

    action: str
    target: str
    reason: str
    part: str = "driver"


@dataclass(frozen=True)
class Foreseen:
    """What would be done; with ``problems`` nothing of it is."""

    effects: tuple[Effect, ...] = ()
    problems: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it as the module answers it (docs/contracts/removal)."""
        return {"steps": [asdict(one) for one in self.effects], "notes": [], "problems": list(self.problems)}


def foresee(host: Host, verb: str, find_node: Callable[[], Node]) -> Foreseen:
    """Say what ``back`` or ``remove`` comes to; raises `PackageError`, OSError."""
    if verb == REMOVE and not is_managed(host):
        return Foreseen(tuple(_leftovers(host)))
    node = find_node()
    try:
        target = plan_work(node, verb).target
    except (StepError, StoreError) as error:
        return Foreseen(problems=(str(error),))
    effects = [*_of_run(node, target), *(_leftovers(host) if verb == REMOVE else ())]
    return Foreseen(tuple(effects), tuple(_problems(node, target)))


def _problems(node: Node, target: Target) -> Iterator[str]:
    """Yield what the run would find in its way: not who uses the driver, who is asked to leave before it begins."""
    checks = (lambda: steps.require_prebuilt(target), lambda: steps.rehearse(node, target))
    yield from filter(None, map(_complaint, checks))


def _complaint(check: Callable[[], None]) -> str:
    try:
        check()
    except (PackageError, StepError) as error:
        return str(error)
    return ""


def _of_run(node: Node, target: Target) -> Iterator[Effect]:
    """Yield what the steps of a run do, as they are ordered in `run`."""
    begun = [
        *_stopped(node, target),
        *_packages(node, target),
        *_modules_on_disk(node, target),
        *_files(node, target),
        *_holds(node, target),
    ]
    yield from begun
    reboot = other_kernel(node.host, target)
    if reboot:
        yield Effect("reboot", "the node", reboot)
    started = [*_loaded(node, target), *_started(node, target)]
    yield from started
    if begun or started:
        yield from (
            Effect("rebuild", f"the initramfs of kernel {kernel}", "the next boot loads what it holds")
            for kernel in commands_to_rebuild(node.host)
        )


def _stopped(node: Node, target: Target) -> Iterator[Effect]:
    if not steps.must_unload(node.host, target):
        return
    yield from (Effect("stop", unit, _OPEN) for unit in steps.remembering(node).services)
    state = kernel_module.read_loaded(node.host)
    yield from (Effect("unload", f"kernel module {name}", f"it is of driver {state.version}") for name in state.loaded)


def _packages(node: Node, target: Target) -> Iterator[Effect]:
    transaction = steps.transaction_of(node, target)
    if transaction is None:
        return
    change = target.change
    installed = node.manager.installed(node.host, {*change.names, *transaction.remove})
    for name in transaction.remove:
        yield Effect("purge" if transaction.purge else "remove", f"{name} {installed[name].version}", _CAME)
    for one in change.packages:
        found = installed.get(one.name)
        if found is None or found.version != one.version or not found.is_whole:
            has = "is not installed" if found is None else f"is {found.version} now"
            yield Effect("install", f"{one.name} {one.version}", has)


def _modules_on_disk(node: Node, target: Target) -> Iterator[Effect]:
    """Yield modules that DKMS has, which come and go with packages: no package names them among its files."""
    change, host = target.change, node.host
    for kernel in lacking_modules(host, target):
        yield Effect("install", f"kernel module nvidia {change.version} for kernel {kernel}", "it was built before")
    if change.version == NO_DRIVER and current_dkms(host):
        for kernel in host.names(_KERNELS):
            version, _ = find_module(host, kernel)
            if version:
                yield Effect("remove", f"kernel module nvidia {version} for kernel {kernel}", "DKMS has built it")


def _files(node: Node, target: Target) -> Iterator[Effect]:
    for file in files_to_put_back(node.host, target.former):
        is_new = file.content is None
        yield Effect("remove" if is_new else "restore", file.path, _CAME if is_new else _BEFORE)


def _holds(node: Node, target: Target) -> Iterator[Effect]:
    """Yield holds as they are changed once the packages are what the target has."""
    change = target.change
    names = {*change.names, *change.remove, *target.known}
    installed = ({*node.manager.installed(node.host, names)} - {*change.remove}) | {*change.names}
    held, free = steps.holds_to_change(node, target, installed)
    yield from (Effect("hold", name, _BEFORE) for name in held)
    yield from (Effect("unhold", name, _BEFORE) for name in free)


def _loaded(node: Node, target: Target) -> Iterator[Effect]:
    version = target.change.module
    if not version:
        return
    is_new = steps.must_unload(node.host, target)
    for name in kernel_module.modules_to_load(steps.remembering(node)):
        if is_new or not is_loaded(node.host, name):
            yield Effect("load", f"kernel module {name}", f"it is of driver {version}")


def _started(node: Node, target: Target) -> Iterator[Effect]:
    if target.change.version == NO_DRIVER:
        return
    named = target.change.services
    stopped = steps.remembering(node).services if steps.must_unload(node.host, target) else ()
    yield from (Effect("enable", unit, "the driver brings it") for unit in named)
    yield from (Effect("start", unit, "it ran before") for unit in stopped if unit not in named)


def _leftovers(host: Host) -> Iterator[Effect]:
    """Yield what is removed once there is no driver; the daemon learns then that no GPU is out of service."""
    found = find_leftovers(host)
    for path in found:
        yield Effect("remove", path, "it tells of the node with its driver" if path in RECORD else "grapnel's own")
    if found and unit_state(host, DAEMON_UNIT).is_active:
        yield Effect("restart", DAEMON_UNIT, "it looks for a driver again")
