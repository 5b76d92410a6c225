"""GPUs that are shared through MPS, wired into the daemon. Loaded where some are declared: most nodes have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.sharing import Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.daemon.dependencies import Dependencies
    from plugin.devices.allocation.answer import Mount
    from plugin.devices.resources import OfferPlan
    from plugin.settings.node_config import NodeConfig
    from plugin.sharing.mps.plan import MpsDaemon, SharedGpu
    from plugin.sharing.mps.supervisor import MpsSupervisor

    Parts = tuple[tuple[tuple[str, str], ...], tuple[Mount, ...]]

_CLOSE_S = 2.0


class MpsSharing:
    """Has a control daemon for each GPU that is shared through MPS, and says which of them can be shared now.

    `ask` has a function called in the driver's thread, `changed` is called when another GPU can be shared or cannot.
    """

    def __init__(
        self,
        ask: Callable[[Callable[[], None]], None],
        dependencies: Dependencies,
        changed: Callable[[], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._ask = ask
        self._dependencies = dependencies
        self._changed = changed
        self._crashed = crashed
        self._supervisor: MpsSupervisor | None = None
        self._daemons: dict[str, MpsDaemon] = {}

    def follow(self, config: NodeConfig, plan: OfferPlan, claimed: tuple[SharedGpu, ...] = ()) -> None:
        """Have the control daemons that a plan needs and those of GPUs that claims share so, and no others."""
        is_shared = bool(claimed) or any(resource.strategy is Strategy.MPS for resource in plan.resources.values())
        if not is_shared and self._supervisor is None and not config.mps_root.is_dir():
            return  # nor has an earlier process left any
        from plugin.sharing.mps.plan import plan_of_node

        wanted = plan_of_node(config, plan, claimed)
        self._daemons = {daemon.uuid: daemon for daemon in wanted.daemons}
        self._supervised().want(wanted)

    def _supervised(self) -> MpsSupervisor:
        if self._supervisor is None:
            from plugin.sharing.mps.supervisor import MpsSupervisor, tools_of_machine

            given = self._dependencies
            tools = tools_of_machine(self._ask, given.logger) if given.mps_tools is None else given.mps_tools()
            self._supervisor = MpsSupervisor(tools, self._changed, self._crashed)
        return self._supervisor

    def problem(self, uuid: str) -> str:
        """Return why a GPU cannot be shared through MPS now, "" where it can."""
        return "" if self._supervisor is None else self._supervisor.problem(uuid)

    def ending(self, uuid: str) -> str:
        """Return why a GPU that is not to be shared any more still is, "" where it is not."""
        return "" if self._supervisor is None else self._supervisor.ending(uuid)

    def parts(self, uuid: str) -> Parts:
        """Return the variables and mounts of a container with a share of a GPU."""
        daemon = self._daemons.get(uuid)
        if daemon is None:
            return (), ()
        from plugin.sharing.mps.answer import answer_share

        answer = answer_share([daemon])
        return answer.variables, answer.mounts

    def release(self) -> None:
        """End all control daemons, as the driver is to be closed."""
        if self._supervisor is not None:
            self._supervisor.release()

    async def ended(self, timeout_s: float) -> tuple[str, ...]:
        """Wait until those have ended that are to; returns what is left, in words."""
        return () if self._supervisor is None else await self._supervisor.ended(timeout_s)

    async def close(self) -> None:
        """End those without clients; the others stay for the next process."""
        if self._supervisor is not None:
            await self._supervisor.close(_CLOSE_S)
