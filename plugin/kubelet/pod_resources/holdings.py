"""Which pod has a device, as the kubelet's pod resources interface says: a view that is kept, and asked again in doubt.

The kubelet names no pod when it allocates, and devices that a pod may use again itself (of its own init containers) are
not listed while it may. So a device that is listed now is another pod's; docs/device-plugin/explain.md has the cases.
A view that is old only ever leads to a question, and no answer to none of them counts against a pod. What was given
away since the kubelet listed it last is in no view: it leads to a question as well, and is preferred last.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from plugin.base.errors import KubeletError
from plugin.devices.allocation.table import NoHoldings
from plugin.devices.sharing import device_of, kind_of
from plugin.kubelet.pod_resources.attribution import CLAIM

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from plugin.base.log import Logger
    from plugin.devices.allocation.table import Holdings
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment

DOUBT_S = 0.4  # a pod's admission waits for it, and all others behind it
LISTED_S = 5.0  # after an allocation the kubelet has listed it, however busy it is
_ASK_S = 5.0
_AGAIN_S = 0.2
_DOUBT_OF_CLAIM_S = 2.0  # a claim is prepared in 10 s


class Pace(NamedTuple):
    """How long to wait for questions, in seconds."""

    first_s: float = 1.0  # after an allocation: the kubelet lists a container once it has the answer
    latest_s: float = 10.0  # in a row of allocations without a pause
    after_s: tuple[float, ...] = (4.0, 25.0)  # then: a kubelet that starts lists no pods for a while
    slow_s: float = 60.0  # while anything is held or expected
    urgent_s: float = 2.0  # while devices are not offered because pods have them
    starts_s: float = 8.0  # a kubelet that starts lists no pods for 3 s: who was listed so lately still has what he had


class Held:
    """Who has which device of device plugins by one answer of the kubelet.

    Of a GPU that is shared every unit is a device. Whoever has a unit of one kind keeps others from those of another:
    the whole GPU, a share of its time, units of its memory.
    """

    def __init__(self, assignments: Iterable[DeviceAssignment]) -> None:
        self._exact: dict[str, str] = {}
        self._uses: dict[str, dict[tuple[str, str], str]] = {}  # device → resource and kind of unit → who has one
        self._units: dict[str, set[str]] = {}
        for each in assignments:
            if each.resource.startswith(CLAIM):
                continue  # who has a GPU by a claim, and who only sees it, the daemon itself knows
            who = f"{each.holder.namespace}/{each.holder.pod} as {each.resource}"
            for device_id in each.device_ids:
                self._exact.setdefault(device_id, who)
                device, use = device_of(device_id), (each.resource, kind_of(device_id))
                self._uses.setdefault(device, {}).setdefault(use, who)
                self._units.setdefault(device, set()).add(device_id)

    def __bool__(self) -> bool:
        """Whether anybody has anything."""
        return bool(self._exact)

    def holder(self, device_id: str) -> str:
        """Return the pod that has the device, "" where none is known."""
        exact, kind = self._exact.get(device_id, ""), kind_of(device_id)
        uses = self._uses.get(device_of(device_id), {})
        return exact or next((who for (_, other), who in uses.items() if other != kind), "")

    @property
    def everything(self) -> Mapping[str, str]:
        """Who has what, by the ids of devices and units."""
        return self._exact

    def other_use(self, device: str, resource: str, kind: str) -> str:
        """Return who has a device, or a unit of it, under another resource or as a unit of another kind."""
        uses = self._uses.get(device, {})
        return next((who for use, who in uses.items() if use != (resource, kind)), "")

    def any_of(self, device: str) -> str:
        """Return a pod that has a device or a unit of it, "" where none has."""
        return next(iter(self._uses.get(device, {}).values()), "")

    def units_of(self, device: str) -> set[str]:
        """Return the ids of a device's units that pods have."""
        return self._units.get(device, set())


class HoldingsView:
    """Asks `ask(deadline)` at the kubelet's coming, after allocations, and slowly while anybody has anything.

    `listed` hears every answer and when it was asked for; `is_waiting` says whether one is still wanted. Nothing is
    asked while nothing is held or expected. Used in the event loop's thread.
    """

    def __init__(
        self,
        ask: Callable[[float], Awaitable[tuple[DeviceAssignment, ...]]],
        listed: Callable[[tuple[DeviceAssignment, ...], float], None],
        is_waiting: Callable[[], bool],
        logger: Logger,
        pace: Pace | None = None,
    ) -> None:
        self.held = Held(())
        self._listed_at: dict[DeviceAssignment, float] = {}  # of a moment ago as well, the newest first
        self._recent = Held(())  # that is who had what
        self.problem = "the kubelet was not asked yet"
        self._ask = ask
        self._listed = listed
        self._is_waiting = is_waiting
        self._log = logger
        self._pace = pace or Pace()
        self._given: dict[str, float] = {}  # what no answer can have listed yet, and when it was given away
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Future[None] | None = None
        self._delays: tuple[float, ...] = ()  # until the questions that are to follow
        self._latest: float | None = None  # when to ask in any case; None: nothing was given away since the last time
        self._asked = self._answered = 0  # questions are numbered
        self._was_asked = False  # and there was an answer, or none will come
        self._is_stopped = False
        self._is_urgent = False

    def be_urgent(self, is_urgent: bool) -> None:  # noqa: FBT001 - one switch
        """Ask often from now on, or not any more: devices wait for those who have them."""
        begins, self._is_urgent = is_urgent and not self._is_urgent, is_urgent
        if begins:
            self._follow_up(self._pace.urgent_s)

    def kubelet_came(self) -> None:
        """Ask at once: a kubelet has registered the devices."""
        self._follow_up(0.0)

    def giving(self, device_ids: Iterable[str]) -> None:
        """Take these devices for a pod's, until the kubelet has had the time to list which one has them."""
        self._given.update(dict.fromkeys(device_ids, asyncio.get_running_loop().time()))

    def changed(self, device_ids: Iterable[str] = ()) -> None:
        """Ask soon: these devices were given away. Each further allocation puts it off, for a while."""
        self.giving(device_ids)
        now = asyncio.get_running_loop().time()
        if self._latest is None:
            self._latest = now + self._pace.latest_s
        self._follow_up(max(0.0, min(self._pace.first_s, self._latest - now)))

    def stop(self) -> None:
        """Ask no more."""
        self._is_stopped = True
        self._cancel()
        if self._asking is not None:
            self._asking.cancel()

    @property
    def known(self) -> Held | None:
        """Who has which device, or was listed with it a moment ago; None while the kubelet has not said it once."""
        return self._recent if self._answered else None

    @property
    def is_resting(self) -> bool:
        """Whether nothing will be asked until something happens."""
        return self._timer is None and self._asking is None

    def _follow_up(self, delay_s: float) -> None:
        self._delays = self._pace.after_s
        self._plan(delay_s)

    def _plan(self, delay_s: float) -> None:
        self._cancel()
        if not self._is_stopped:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._start)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._timer = self._latest = None
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self.ask_now(_ASK_S)
        finally:
            self._asking = None
        if self._timer is not None:
            return  # something happened meanwhile
        if self._is_urgent:
            self._plan(self._pace.urgent_s)
        elif self._delays:
            delay_s, self._delays = self._delays[0], self._delays[1:]
            self._plan(delay_s)
        elif self.held or self.problem or self._is_waiting():
            self._plan(self._pace.slow_s)

    async def ask_now(self, deadline_s: float) -> bool:
        """Ask, whatever is being asked already: an answer that was on its way may be older than the question."""
        asked_at, since = time.time(), asyncio.get_running_loop().time()
        self._asked += 1
        question = self._asked
        try:
            assignments = await self._ask(deadline_s)
        except KubeletError as error:
            self.problem, self._was_asked = error.message, True
            if not self._delays:
                hint = "nothing is refused, and explain knows no pods, until it answers"
                self._log.standing("holdings", error.message, hint=hint)
            return False
        self.problem, self._was_asked = "", True
        self._log.standing("holdings")
        if question < self._answered:
            return True  # overtaken by a newer one
        self._answered = question
        self.held = Held(assignments)
        lately = {each: at for each, at in self._listed_at.items() if at + self._pace.starts_s > since}
        now = dict.fromkeys(assignments, since)
        self._listed_at = {**now, **lately, **now}  # in this order: whoever has a device is named before who had it
        self._recent = Held(self._listed_at)
        self._given = {each: at for each, at in self._given.items() if at + LISTED_S > since}
        self._listed(assignments, asked_at)
        return True

    def holder_of(self, devices: Sequence[str]) -> str | None:
        """Return a pod that has any of these devices or units, "" where none has, None until the kubelet says so."""
        if not self._answered:
            return None
        new = any(device_of(each) in devices for each in self._given)
        found = (who for each in devices if (who := self._recent.any_of(each)))
        return next(found, "a pod of a moment ago" if new else "")

    def units_of(self, device: str) -> set[str] | None:
        """Return the ids of a device's units that pods have, None until the kubelet says so."""
        if not self._answered:
            return None
        new = {each for each in self._given if device_of(each) == device}
        return new | self._recent.units_of(device)

    async def look_again(self) -> None:
        """Ask now; raises KubeletError where there is no answer, also the second time: a kubelet limits questions."""
        if await self.ask_now(_DOUBT_OF_CLAIM_S):
            return
        await asyncio.sleep(_AGAIN_S)
        if not await self.ask_now(_DOUBT_OF_CLAIM_S):
            raise KubeletError(self.problem)

    async def holdings(self, device_ids: Sequence[str]) -> Holdings:
        """Return who has any of these devices; the kubelet is asked where a pod seems to, and where it never was asked.

        A daemon that has just started may offer GPUs in another way than the one before it did.
        """
        is_doubtful = any(map(self.held.holder, device_ids)) or (
            not self.problem and any(map(self._is_new, device_ids))
        )
        if self._was_asked and not is_doubtful:
            return NoHoldings()
        return self.held if await self.ask_now(DOUBT_S) else NoHoldings()

    def reliable(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Return which devices to choose from, of those that the kubelet takes for free.

        It may have forgotten what was given away a moment ago: if there are enough others, that is not among them.
        """
        if not self._given or self.problem:  # a kubelet that does not answer says of nothing that it is listed
            return available
        kept = [each for each in available if each in required or not self._is_new(each)]
        return kept if len(kept) >= size else available

    def _is_new(self, device_id: str) -> bool:
        """Tell whether a device, or a part of it in another way, was given away since the kubelet listed devices."""
        if device_id in self._given:
            return True
        device, kind = device_of(device_id), kind_of(device_id)
        return any(device_of(each) == device and kind_of(each) != kind for each in self._given)
