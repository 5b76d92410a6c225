"""What the daemon answers on the admin socket, and how long it waits before it does.

Not here: the socket, and what a release means.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

from plugin.base.errors import HistoryError
from plugin.changes.driver_change.release.record import gpu_to_json, remember_gpus
from plugin.kubelet.pod_resources.holdings import DOUBT_S
from plugin.settings.node_config import DEVICE_PLUGIN, DRA

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from plugin.changes.driver_change.release.record import Release
    from plugin.devices.observer import Observation
    from plugin.holdings.history.keeper import HistoryKeeper
    from plugin.kubelet.offering import Offering
    from plugin.settings.node_config import NodeConfig

_SHOWN_S = 5.0  # for a list to reach the kubelets, or for one of them to come
_CLAIMS_S = 30.0  # a kubelet looks for drivers at once; the API may be slow
_MPS_S = 5.0  # a server ends a second or two after its last client
_ASK_S = 5.0
_STARTS_S = 10.0  # the kubelet lists a container soon after it has its devices, or its start has failed
_MAX_WAIT_S = 600.0


class State(Protocol):
    """What the daemon knows at the moment."""

    release: Release | None
    observation: Observation
    last_seen: Observation


class ObservedDriver(Protocol):
    """Who observes the driver."""

    closed: asyncio.Event  # the session, since the release
    observed: asyncio.Event  # since the start, the resume, or the last `look_now`

    @property
    def is_let_go(self) -> bool:
        """Whether the driver is not observed, or is not to be."""

    def observe_now(self) -> None:
        """Look at driver and verdicts before it is time."""


class Mps(Protocol):
    """Who has control daemons of MPS."""

    async def ended(self, timeout_s: float) -> tuple[str, ...]:
        """Wait until those have ended that are to; returns what is left, in words."""


class Claims(Protocol):
    """Who gives GPUs away by claims."""

    @property
    def offered(self) -> int:
        """How many devices a claim could be given."""

    @property
    def held(self) -> int:
        """How many of these wait for whoever has them by the device plugin."""

    @property
    def still_held(self) -> int:
        """How many of the device plugin's GPUs wait for the claims that have them."""

    @property
    def divided(self) -> frozenset[str]:
        """The UUIDs of the GPUs that claims are given, where the device plugin gives the others; else none."""

    @property
    def division_problems(self) -> tuple[str, ...]:
        """What the GPUs that are declared to be given by claims are not on this node."""

    @property
    def problem(self) -> str:
        """What `settled` waits for; "" once it is so."""

    async def settled(self) -> None:
        """Wait until claims can be given just what is offered by claims."""


class Limits(Protocol):
    """Who limits the memory of containers."""

    async def answer(self, content: dict[str, Any]) -> dict[str, Any]:
        """Answer the request of a hook."""


async def _within(timeout_s: float, waiting: Coroutine[object, object, object]) -> bool:
    """Wait at most so long; whether it was long enough."""
    task = asyncio.ensure_future(waiting)
    done, _ = await asyncio.wait({task}, timeout=timeout_s)
    if not done:
        task.cancel()
    return bool(done)


class Answers:
    """`status` says what is so; `look` follows the release first, `health` the verdicts, and both wait for it.

    `explain` says what happened to the pod or device in `about` ("": all), with the `last` allocations of it. `limit`
    is the hook's, and answered by `limits`. `mig` follows a change of how GPUs are cut, and says who has what.
    """

    def __init__(
        self,
        state: State,
        driver: ObservedDriver,
        offering: Offering,
        history: HistoryKeeper,
        follow: Callable[[], None],
        *,
        claims: Claims,
        config: Callable[[], NodeConfig],
        limits: Limits,
        mps: Mps,
    ) -> None:
        self._state = state
        self._driver = driver
        self._offering = offering
        self._history = history
        self._follow = follow
        self._claims = claims
        self._config = config
        self._limits = limits
        self._mps = mps

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; a wrong one gets an `error`."""
        verb, timeout_s = request.get("verb"), request.get("timeout_s", 0.0)
        if verb == "explain":
            return await self._explain(request.get("about", ""), request.get("last", 20))
        if verb == "limit":
            return await self._limits.answer(request)
        if verb not in {"status", "look", "health", "mig"}:
            return {"error": "verb must be status, look, health, explain, limit or mig"}
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 <= timeout_s <= _MAX_WAIT_S:
            return {"error": f"timeout_s must be a number from 0 to {_MAX_WAIT_S:g}"}
        if verb == "mig":
            return await self._mig(timeout_s)
        problems: list[str] = []
        if verb == "look":
            self._follow()
            if self._state.release is not None:
                problems = await self._until_released(timeout_s)
            else:
                waits = await self._until_resumed(timeout_s)
                notes = [message for _, message in self._state.observation.inventory.findings]
                return {**self._status(), "waits": waits, "problems": [*waits, *notes]}
        elif verb == "health" and self._state.release is None:
            self._driver.observe_now()
            if not await _within(timeout_s, self._driver.observed.wait()):
                problems.append("the driver does not answer: the verdict counts when it does")
        return {**self._status(), "problems": problems}

    async def _mig(self, timeout_s: float) -> dict[str, Any]:
        """Answer with who has which device, once nobody is given one that is being changed."""
        self._follow()
        if not await _within(min(timeout_s, _SHOWN_S), self._offering.taken(to_at_least=0)):
            return {"problems": ["the kubelet has not taken the list, and may still place pods: journalctl -u kubelet"]}
        if self._driver.is_let_go and not await _within(timeout_s, self._driver.closed.wait()):
            return {"problems": ["the driver does not answer: its session is still open"]}
        view, now = self._history.view, time.time()
        is_offered = bool(self._offering.resources) and not self._offering.lacks_kubelet
        if not await view.ask_now(_ASK_S) and is_offered:
            return {"problems": [view.problem]}
        held = {device: [who] for device, who in view.held.everything.items()}
        for device in self._history.ledger.given_since(now - _STARTS_S):
            held.setdefault(device, ["a container that starts"])
        return {"pid": os.getpid(), "pods": held, "problems": []}

    async def _explain(self, about: object, last: object) -> dict[str, Any]:
        """Answer with the explanation, or with `unknown` and a `hint`."""
        if not isinstance(about, str) or isinstance(last, bool) or not isinstance(last, int):
            return {"error": "about must be a text, last a whole number"}
        from plugin.holdings.history.view import MAX_LAST, explain  # noqa: PLC0415 - not needed at the start

        history = self._history
        await history.view.ask_now(DOUBT_S)
        await history.written()  # what is told is remembered
        problems = [history.view.problem] if history.view.problem else []
        try:
            explanation = explain(history.ledger, about, max(0, min(last, MAX_LAST)))
        except HistoryError as error:
            return {"unknown": error.message, "hint": error.hint}
        return {"explanation": {**explanation, "problems": problems}}

    def _status(self) -> dict[str, Any]:
        seen, config, interfaces = self._state.last_seen, self._config(), self._interfaces()
        return {
            "released": self._state.release is not None,
            "offered": sum(each["offered"] for each in interfaces.values()),
            "held": sum(each["held"] for each in interfaces.values()),
            "interface": config.interface,
            "interfaces": interfaces,
            "claims": list(config.claims),
            "byClaims": sorted(self._claims.divided),
            "driverVersion": seen.inventory.driver_version,
            "gpus": [gpu_to_json(gpu) for gpu in remember_gpus(seen.inventory, seen.waiting_for)],
        }

    def _interfaces(self) -> dict[str, dict[str, int]]:
        """Return how many can be given by each interface, and how many wait for who has them otherwise."""
        config, found = self._config(), {}
        if config.has_plugin:
            held = self._claims.still_held + len(self._offering.waits)
            found[DEVICE_PLUGIN] = {"offered": self._offering.offered, "held": held}
        if config.has_claims:
            found[DRA] = {"offered": self._claims.offered, "held": self._claims.held}
        return found

    async def _until_released(self, timeout_s: float) -> list[str]:
        """Wait until kubelets and driver know; return what is not so."""
        problems = []
        if not await _within(min(timeout_s, _SHOWN_S), self._offering.taken(to_at_least=0)):
            what = "the kubelet has not taken the list without healthy devices, and may still place pods"
            problems.append(f"{what}: see journalctl -u kubelet")
        if not await _within(timeout_s, self._driver.closed.wait()):
            problems.append("the driver does not answer: its session is still open")
        left = await self._mps.ended(min(timeout_s, _MPS_S))
        return [*problems, *(f"a control daemon of MPS has not ended: {words}" for words in left)]

    async def _until_resumed(self, timeout_s: float) -> list[str]:
        """Wait until the GPUs are offered; return why they are not."""
        if not await _within(timeout_s, self._driver.observed.wait()):
            return ["the driver does not answer"]
        if waiting_for := self._state.observation.waiting_for:
            return [waiting_for]
        if not await _within(min(timeout_s, _CLAIMS_S), self._claims.settled()):
            return [self._claims.problem]
        if problems := self._claims.division_problems:
            return list(problems)
        if not self._config().has_plugin:
            return []
        if self._offering.lacks_kubelet or not await _within(
            min(timeout_s, _SHOWN_S), self._offering.taken(to_at_least=1)
        ):
            return ["no kubelet watches the list: it gets it when it registers"]
        return []
