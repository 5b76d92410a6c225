"""`stage` prepares a change, `check` looks at it again, `collect` gets together what other machines need for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.check import check_set
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.collect import collect_change
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import Finding, StageOptions, StageResult
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.priority import give_way
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.stage import stage_change
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import PackageSystem
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.sources import find_source

if TYPE_CHECKING:
    from typing import Callable

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

    _What = Callable[[Host, PackageSystem, DriverChange, StageOptions, Clock], StageResult]

_NO_MANAGER = "grapnel exchanges drivers with apt, dnf and zypper: plan for a distribution that has one of them"


def stage(
    host: Host,
    change: DriverChange,
    options: StageOptions = StageOptions(),  # noqa: B008 - options are a value
    clock: Clock = Clock(),  # noqa: B008 - a Clock is a value
) -> StageResult:
    """Stage a change at the lowest priority; a second call finds it done. Errors are findings of the result."""
    return _carry_out(stage_change, host, change, options, clock)


def collect(
    host: Host,
    change: DriverChange,
    options: StageOptions = StageOptions(),  # noqa: B008 - options are a value
    clock: Clock = Clock(),  # noqa: B008 - a Clock is a value
) -> StageResult:
    """Collect what other machines need for a change, at the lowest priority. Errors are findings of the result."""
    return _carry_out(collect_change, host, change, options, clock)


def _carry_out(what: _What, host: Host, change: DriverChange, options: StageOptions, clock: Clock) -> StageResult:
    give_way(host)
    try:
        manager = find_manager(host)
    except PackageError as error:
        return _refusal(change, str(error))
    if manager.name != change.manager:
        return _refusal(change, f"the change is for {change.manager}, and this node has {manager.name}")
    return what(host, PackageSystem(manager, find_source(manager.name)), change, options, clock)


def _refusal(change: DriverChange, why: str) -> StageResult:
    finding = Finding("no-package-manager", why, _NO_MANAGER)
    return StageResult(change_id(change), complete=False, changed=False, findings=(finding,))


def check(host: Host, identifier: str) -> tuple[Finding, ...]:
    """Return what is wrong with a staged set now; it can be used unless one of that is an error."""
    try:
        return check_set(host, find_manager(host), identifier)
    except PackageError as error:
        return (Finding("no-package-manager", str(error), _NO_MANAGER),)
