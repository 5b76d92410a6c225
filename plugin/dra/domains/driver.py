"""The driver of ComputeDomains: publishes the node's IMEX channel, and gives it to claims of the domain that has it.

Two domains are never in one clique, whoever is killed, forced away or slow. A node says in its slice that a domain has
it, waits until the API has that, and only then reads whether the domain still is there and has the node; the controller
gives a clique to the next domain after the last one is gone, and its nodes' slices, read after that, say that they are
free. So either the node sees that the domain is gone, or the controller sees that the node is not free.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from plugin.base.errors import ClaimError, ClusterError
from plugin.dra.cdi import device_node
from plugin.dra.claims import read_claim
from plugin.dra.domains.decision import (
    DRIVER,
    FILE,
    KIND,
    Place,
    channel_device,
    domain_of,
    place_of,
    read_domain,
    why_not_in,
    without_configs,
)
from plugin.dra.driver import ClaimDriver, DriverContext
from plugin.dra.service import answer
from plugin.publication.node_object.answers import NOT_FOUND
from plugin.sharing.imex import Imex

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from plugin.devices.inventory import Inventory
    from plugin.dra import messages as api
    from plugin.dra.claims import ClaimName
    from plugin.dra.devices import DraDevice
    from plugin.dra.domains.decision import Domain
    from plugin.dra.store import Record

FOLDER = "domain-claims"  # of the state folder
_CHANNEL = "0"  # its name for engines
_VERSION = "0.5.0"  # of CDI: the least that has host paths
_PATIENCE_S = 5.0  # for controller and slices; the daemon has 10 s for an answer to the kubelet
_LOOK_S, _SELDOM_S = 0.1, 1.0  # all nodes of a domain wait at once, and each answer of the API names all of them
_TOPIC = "compute domains"


class DomainDriver(ClaimDriver):
    """A driver whose one device is the node's channel. `control` is where nvidia-imex-ctl is."""

    driver, folder, cdi_file = DRIVER, FOLDER, FILE

    def __init__(self, context: DriverContext, control: Path) -> None:
        super().__init__(context._replace(changed=self._show), named=self._named)
        self._imex = Imex(control, context.config.proc_root)
        self._asked: dict[str, Domain] = {}  # by UIDs of claims
        self._place: Place = Place(context.where.node)
        self._is_offered = False

    def show(self, inventory: Inventory, *, is_offered: bool) -> None:
        """Publish the channel, and which domain has it. `is_offered` False: only while a claim has it."""
        self._place, self._is_offered = place_of(self._where.node, inventory), is_offered
        self._show()

    def _show(self) -> None:
        known = {*self.service.pending, *(each.claim.uid for each in self.store.records())}
        for uid in [each for each in [*self._asked] if each not in known]:
            self._asked.pop(uid, None)  # and not another dict: a thread may put one in meanwhile
        held = next((each.domain for _, each in self.store.held() if each.domain), "")
        device = channel_device(self._place, held, "")
        why = self._why_not(device)
        if why:
            self._log.standing(_TOPIC, why, hint="docs/dra/domains.md says what a node needs")
        else:
            self._log.standing(_TOPIC)
        self.devices = {} if device is None else {device.name: device._replace(unhealthy=why)}
        self._health.show(self._where.node, tuple(self.devices.values()))
        # Nothing is not the same as a free channel: a clique stays whose it is while one of its nodes says nothing.
        shown = () if device is None or why or not (self._is_offered or held) else (device,)
        if shown and not self.store.note_published(self._where):
            return
        self._slices.publish(shown)

    def _why_not(self, device: DraDevice | None) -> str:
        """Return why the channel is not given to claims, "" where it is, or is not to be."""
        if self.store.unknown:
            return f"{self.store.unknown} cannot be read: a ComputeDomain may have this node"
        if not self._is_offered:
            return ""
        if device is None:
            lacks = "IMEX channel 0" if self._place.clique else "NVLink clique that all its GPUs are in"
            return f"this node is in no ComputeDomain: it has no {lacks}"
        if found := next(iter((self._config.kubelet_root / "plugins_registry").glob(f"{DRIVER}*.sock")), None):
            return f"{found}: another driver {DRIVER} serves this node"
        if self._config.settings.answers.imex.channels:
            return "imex.channelIDs gives the channel to every container with a gpu, whatever domain it is of"
        return ""

    async def ready(self, record: Record) -> Record:
        """Return the record of a claim whose domain has this node from now on; raises ClaimError."""
        claim = record.claim
        deadline_s = asyncio.get_running_loop().time() + _PATIENCE_S
        if (domain := self._asked.get(claim.uid)) is None:
            raise ClaimError(f"{claim}: the api server does not say which ComputeDomain it is of", "it is asked again")
        await self._imex.require_ready()
        await self._until(deadline_s, lambda: self._why_not_in(domain), claim)
        if self.store.find(claim.uid) is None:
            raise ClaimError(f"{claim} was given back while it was prepared")
        held = record._replace(devices=tuple(each._replace(domain=domain.uid) for each in record.devices))
        self.store.put(held)
        self._show()
        await self._until(deadline_s, self._why_not_told, claim)
        if why := await self._why_not_in(domain):
            raise ClaimError(f"{claim}: {why}", "it is asked for again")
        return held

    async def _until(self, deadline_s: float, why_not: Callable[[], Awaitable[str]], claim: ClaimName) -> None:
        """Ask until there is no reason against it any more; raises ClaimError with the one that is left."""
        pause_s = _LOOK_S
        while why := await why_not():
            left_s = deadline_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise ClaimError(f"{claim}: {why}", "it is asked for again")
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _SELDOM_S)

    async def _why_not_in(self, domain: Domain) -> str:
        try:
            document = await asyncio.to_thread(self._api.ask, read_domain(domain))
        except ClusterError as error:
            if error.status == NOT_FOUND:
                return f"there is no {domain}"
            return f"{domain} cannot be read: {error.message}"
        return why_not_in(document, domain, self._place)

    async def _why_not_told(self) -> str:
        if not self.devices:
            return self._why_not(None) or "this node has no channel to give"
        is_told = self._slices.is_settled
        return "" if is_told else f"the slice does not say yet whose node this is: {self._slices.problem}"

    def prepare(self) -> None:
        """Have the CDI file name the channel; raises ClaimError."""
        channel = self._place.channel
        if channel is None:
            raise ClaimError("this node has no IMEX channel 0", "is the driver loaded with its imex channels?")
        edits = {"deviceNodes": [device_node(f"/dev/{channel.name}", channel.path)]}
        rows = [{"name": _CHANNEL, "containerEdits": edits}]
        self._cdi.write({"cdiVersion": _VERSION, "kind": KIND, "devices": rows})

    def _named(self, record: Record) -> tuple[api.Device, ...]:
        return tuple(answer(each, (f"{KIND}={_CHANNEL}",)) for each in record.devices)

    def _read_claim(self, claim: ClaimName) -> dict[str, Any]:
        self._asked.pop(claim.uid, None)
        document = self._api.ask(read_claim(claim))
        self._asked[claim.uid] = domain_of(document, claim)
        return without_configs(document)
