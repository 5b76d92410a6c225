"""Looks for devices that are not GPUs, where there are files that describe any, and has them offered.

In a thread of its own for each look: a file of sysfs can hang in a driver, and nothing waits for it then. Not here:
what the files mean (`plugin.devices.other`, which is imported where there is one).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from plugin.settings.node_config import DRA
from plugin.system.thread_calls import called_in_own

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.base.log import Logger
    from plugin.daemon.optional.other_claims import OtherClaims
    from plugin.devices.other.files import Classes
    from plugin.devices.other.offered import OtherPlan
    from plugin.kubelet.offering import Offering
    from plugin.settings.node_config import NodeConfig

_TOPIC = "other devices"
_HINT = "what was found before is still offered"
_AGAIN_S = 60.0  # after a failure, until the next look


class _Look(NamedTuple):
    """One look at files and machine."""

    found: Classes
    plan: OtherPlan


class OtherDevices:
    """Made and used in the event loop's thread. `shown` is called after each list that is offered.

    `claims` has what is given by claims instead.
    """

    def __init__(
        self,
        offering: Offering,
        claims: OtherClaims,
        logger: Logger,
        shown: Callable[[], None],
        stall_s: float = 60.0,
    ) -> None:
        self._offering = offering
        self._claims = claims
        self._latest: tuple[NodeConfig, OtherPlan] | None = None  # what was found last
        self._log = logger
        self._shown = shown
        self._stall_s = stall_s
        self._found: Classes | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, config: NodeConfig) -> None:
        """Offer what the files of this configuration describe from now on. They are read now alone, sysfs in turns."""
        self.close()
        if self._found is not None or config.device_classes.is_dir() or self._claims.is_needed(config):
            self._task = asyncio.ensure_future(self._keep_looking(config))
            self._task.add_done_callback(self._on_end)

    def close(self) -> None:
        """Look no more; what is offered stays."""
        self._latest = None
        if self._task is not None:
            self._task.cancel()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            problem = f"nobody looks for devices any more: {type(error).__name__}: {error}"
            self._log.standing(_TOPIC, problem, hint=f"{_HINT}; systemctl reload grapnel-node begins again")

    async def _keep_looking(self, config: NodeConfig) -> None:
        known, found = self._found, None
        while True:
            look = await self._look(config, found, known)
            if look is not None:
                if found is None:
                    self._tell_problems(look.found)
                self._found = found = look.found
                self._latest = config, look.plan
                self.show_again()
                if not found.classes:
                    return
            await asyncio.sleep(_AGAIN_S if found is None else found.rescan_s)

    def show_again(self) -> None:
        """Offer what was found last: claims have come or gone, or others who had any of it."""
        if self._latest is not None:
            config, plan = self._latest
            left = self._claims.show(config, plan)
            self._offering.show_others(config, left, is_offered=config.interface != DRA)
            self._shown()

    def _tell_problems(self, found: Classes) -> None:
        before = {} if self._found is None else self._found.problems
        for topic in {**before, **found.problems}:
            problem = found.problems.get(topic, "")
            self._log.standing(topic, problem, **({"hint": "the other files count"} if problem else {}))

    async def _look(self, config: NodeConfig, found: Classes | None, known: Classes | None) -> _Look | None:
        """Return what there is, None where looking failed: a bug here must not cost anybody a GPU."""
        looking = called_in_own("other-devices", lambda: _look(config, found, known))
        while not (await asyncio.wait({looking}, timeout=self._stall_s))[0]:
            self._log.standing(_TOPIC, f"sysfs has not answered for {self._stall_s:g} s", hint=_HINT)
        error = looking.exception()
        if error is not None:
            self._log.standing(_TOPIC, f"looking for devices failed: {type(error).__name__}: {error}", hint=_HINT)
            return None
        self._log.standing(_TOPIC)
        return looking.result()


def _look(config: NodeConfig, found: Classes | None, known: Classes | None) -> _Look:
    """Return the plan for the classes that were found, or for those of the files. In a thread."""
    from plugin.devices.other.files import read_classes
    from plugin.devices.other.plan import plan_others
    from plugin.devices.other.sysfs import HostSysfs

    if found is None:
        found = read_classes(config.device_classes, known.classes if known is not None else {})
    return _Look(found, plan_others(found.classes.values(), HostSysfs(config.sys_root, config.dev_root)))
