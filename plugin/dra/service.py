"""Answers the kubelet's calls: claims are prepared and given back, and the health of devices is told.

A claim is prepared when its record is on the disk; while the API server is away, whoever asks again gets the same
answer. Giving one back removes the record alone, so it works without the driver, without the API and after a reboot.
Not here: who decides which device a claim has (the scheduler), and the file of the engine (`driver`).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from plugin.base.errors import ClaimError, ClusterError, KubeletError
from plugin.dra import messages as api
from plugin.dra.claims import ClaimName, find_results
from plugin.dra.configs import AS_IT_IS
from plugin.dra.devices import DRIVER, quantity
from plugin.dra.given import is_of, numbered, sharing_of, together, without_contradiction
from plugin.dra.store import PreparedDevice, Record, is_uid
from plugin.kubelet.cdi_names import memory_name, mps_name, qualified
from plugin.kubelet.rpc.serving import ServerStream, Unary
from plugin.publication.node_object.answers import BAD_REQUEST, BROKEN, TOO_MANY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Any

    from plugin.base.log import Logger
    from plugin.dra.claims import Result
    from plugin.dra.configs import DeviceConfig
    from plugin.dra.devices import DraDevice
    from plugin.dra.store import ClaimStore
    from plugin.kubelet.rpc.serving import Method

PLUGIN_SERVICES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}
HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
_HEALTHY, _UNHEALTHY = 1, 2
_TIMEOUT_S, _AGAIN_S = 60, 20.0  # what is not told again within the first is unknown to the kubelet
_MAX_MESSAGE = 1000
PATIENCE_S = 4.0  # the daemon has 10 s for an answer to the kubelet
_API_S = 3.0  # of these, for what the API says of a claim that is prepared


class _StillHeld(ClaimError):
    """Another claim has a device, and is about to be given back."""


class Node(Protocol):
    """What the service asks of the node."""

    @property
    def devices(self) -> Mapping[str, DraDevice]:
        """The devices by their names, healthy or not."""

    async def look_again(self) -> None:
        """Ask the kubelet who has devices by its device plugins; raises KubeletError."""

    def holder(self, device: DraDevice) -> str:
        """Return who has a device, or a part of it, by a device plugin; "" where no pod has."""

    def prepare(self) -> None:
        """Have the engine know all devices; raises ClaimError."""

    async def ready(self, record: Record) -> Record:
        """Return a record whose devices are all there, also those that are made for it; raises ClaimError."""

    async def shared(self, record: Record) -> None:
        """Wait until its devices are shared as a claim says; raises ClaimError where they are not soon."""

    def prepared(self, record: Record) -> None:
        """Hear of a claim that has its devices from now on."""

    def changed(self) -> None:
        """Hear that claims have come or gone."""


class Health:
    """What is told of devices: whoever waits is woken when it changes."""

    def __init__(self) -> None:
        self._pool = ""
        self._devices: tuple[DraDevice, ...] = ()
        self._since = 0
        self._changed = asyncio.Event()

    def show(self, pool: str, devices: tuple[DraDevice, ...]) -> None:
        """Tell this from now on."""
        told = [(each.name, each.unhealthy) for each in devices]
        if (pool, told) == (self._pool, [(each.name, each.unhealthy) for each in self._devices]):
            return
        self._pool, self._devices = pool, devices
        self._changed.set()
        self._changed = asyncio.Event()

    async def watch(
        self, _request: api.NodeWatchResourcesRequest, send: Callable[[api.NodeWatchResourcesResponse], Awaitable[None]]
    ) -> None:
        """Tell of all devices, at once, when something changes, and so often that the kubelet goes on believing it."""
        while True:
            changed = self._changed
            await send(self._response())
            try:
                await asyncio.wait_for(changed.wait(), _AGAIN_S)
            except asyncio.TimeoutError:
                continue

    def _response(self) -> api.NodeWatchResourcesResponse:
        now = int(time.time())
        return api.NodeWatchResourcesResponse(
            devices=tuple(
                api.DeviceHealth(
                    device=api.DeviceIdentifier(pool_name=self._pool, device_name=each.name),
                    health=_UNHEALTHY if each.unhealthy else _HEALTHY,
                    last_updated_time=now,
                    health_check_timeout_seconds=_TIMEOUT_S,
                    message=each.unhealthy[:_MAX_MESSAGE],
                )
                for each in self._devices
            )
        )


class ClaimService:
    """The calls of `DRAPlugin`. In the event loop; `read_claim` is called in a thread, and raises ClusterError.

    `named` returns how engines are asked for what a claim has, `noted` a new record with what it is to keep of that.
    """

    def __init__(
        self,
        node: Node,
        store: ClaimStore,
        health: Health,
        read_claim: Callable[[ClaimName], Any],
        logger: Logger,
        *,
        driver: str = DRIVER,
        named: Callable[[Record], tuple[api.Device, ...]] | None = None,
        noted: Callable[[Record], Record] = lambda record: record,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._node = node
        self._driver = driver
        self._named = named or _named
        self._noted = noted
        self._store = store
        self._health = health
        self._read_claim = read_claim
        self._patience_s = patience_s
        self._given_back = asyncio.Event()  # another one after each claim that was given back
        self._log = logger
        # UIDs of claims that were asked for and are not prepared: the kubelet gives them back as well.
        self.pending: set[str] = set()
        self._given: set[str] = set()  # UIDs of claims whose devices a pod may have by now

    def methods(self) -> Mapping[str, Method]:
        """Return what is served, by path."""
        served: dict[str, Method] = {}
        for service in PLUGIN_SERVICES.values():
            served[f"/{service}/NodePrepareResources"] = Unary(api.NodePrepareResourcesRequest, self.prepare)
            served[f"/{service}/NodeUnprepareResources"] = Unary(api.NodeUnprepareResourcesRequest, self.unprepare)
        for service in HEALTH_SERVICES:
            served[f"/{service}/NodeWatchResources"] = ServerStream(api.NodeWatchResourcesRequest, self._health.watch)
        return served

    async def prepare(self, request: api.NodePrepareResourcesRequest) -> api.NodePrepareResourcesResponse:
        """Prepare each claim, or say why not."""
        answers = await asyncio.gather(*map(self._prepare, request.claims))
        return api.NodePrepareResourcesResponse(claims=tuple(answers))

    async def _prepare(self, asked: api.Claim) -> api.PreparedClaim:
        claim = ClaimName(asked.namespace, asked.name, asked.uid)
        self.pending.add(claim.uid)
        try:
            record = await self._prepared(claim)
            self._node.prepare()
            await self._node.shared(record)
        except (ClaimError, ClusterError, KubeletError) as error:
            self._log.standing(self._topic(claim), error.message, **({"hint": error.hint} if error.hint else {}))
            return api.PreparedClaim(key=claim.uid, value=api.NodePrepareResourceResponse(error=error.message))
        self._log.standing(self._topic(claim))
        self.pending.discard(claim.uid)
        return api.PreparedClaim(key=claim.uid, value=api.NodePrepareResourceResponse(devices=self._named(record)))

    def _topic(self, claim: ClaimName) -> str:
        return f"{claim} of {self._driver}"  # a claim may be of several drivers

    async def _prepared(self, claim: ClaimName) -> Record:
        if not is_uid(claim.uid):
            raise ClaimError(f"{claim} has a uid of no known form")
        known = self._store.find(claim.uid)
        try:
            results = await self._results(claim, None if known is None else _API_S)
        except ClusterError as error:
            is_of_claim = BAD_REQUEST <= error.status < BROKEN and error.status != TOO_MANY
            if known is None or is_of_claim:
                raise
            return await self._ready(known)  # the API server is away, or slow: what was prepared stays so
        if known is not None and is_of(known, results) and self._is_shared_as(known, claim, results):
            return await self._ready(known)
        await self._node.look_again()
        # From the choice to the end nothing else happens in the event loop: no other claim is given the same device.
        record = self._noted(Record(claim, await self._choose_all(claim, results)))
        by_now = self._store.find(claim.uid)
        if by_now is None and claim.uid not in self.pending:
            raise ClaimError(f"{claim} was given back while it was prepared")
        if by_now is not None and by_now is not known:
            return await self._ready(by_now)  # another pod that has the claim was quicker
        self._store.put(record)
        try:
            record = await self._ready(record)
        except ClaimError:
            if claim.uid not in self._given:  # else another pod that has the claim was quicker
                self._store.remove(claim.uid)
                self._node.changed()
            raise
        self._node.prepared(record)
        self._node.changed()
        self._log.info("claim prepared", claim=str(claim), devices=",".join(each.uuid for each in record.devices))
        return record

    async def _results(self, claim: ClaimName, patience_s: float | None) -> tuple[Result, ...]:
        """Return what a claim was given; raises ClaimError, ClusterError."""
        try:
            document = await asyncio.wait_for(asyncio.to_thread(self._read_claim, claim), patience_s)
        except asyncio.TimeoutError as error:
            raise ClusterError(f"the api server does not say within {patience_s} s what {claim} has") from error
        return find_results(document, claim, self._driver)

    async def _ready(self, record: Record) -> Record:
        """Return the record of a claim with the devices that were made for it; raises ClaimError."""
        made = await self._node.ready(record)
        if self._store.find(record.claim.uid) is None:
            raise ClaimError(f"{record.claim} was given back while it was prepared")
        if made != record:
            self._store.put(made)
        self._given.add(record.claim.uid)
        return made

    async def _choose_all(self, claim: ClaimName, results: tuple[Result, ...]) -> tuple[PreparedDevice, ...]:
        """Return the devices of a claim; waits a moment for other claims to be given back. Raises ClaimError.

        The scheduler gives a device away as soon as a pod has ended, and the kubelet gives its claim back after that:
        a claim that is refused in between is asked for again in a minute or more.
        """
        deadline = asyncio.get_running_loop().time() + self._patience_s
        while True:
            given_back = self._given_back
            try:
                devices = [self._choose(claim, result, together(result, results)) for result in results]
                taken = {each.memory_part for holder, each in self._store.held() if holder != claim}
                return without_contradiction(claim, numbered(devices, taken))
            except _StillHeld:
                left_s = deadline - asyncio.get_running_loop().time()
                if left_s <= 0:
                    raise
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(given_back.wait(), left_s)

    def _choose(self, claim: ClaimName, result: Result, counted: Result) -> PreparedDevice:
        """Return the device of a result; raises ClaimError where it is not there, or a pod has it.

        `counted` is all that the claim has of the device.
        """
        device = self._node.devices.get(result.device)
        if device is None:
            raise ClaimError(f"{claim} was given {result.device}, which this node does not have")
        sharing = sharing_of(claim, result, device)
        prepared = PreparedDevice(
            result.request, result.pool, result.device, device.uuid, (), result.is_admin, result.share_id, result.shares
        )
        if result.is_admin:
            if sharing != AS_IT_IS:
                raise ClaimError(f"{claim} sees {device.uuid} as an admin, and asks for {sharing}: others have it")
            return prepared
        if device.unhealthy:
            raise ClaimError(f"{claim} was given {device.uuid}, which is unhealthy: {device.unhealthy}")
        if holder := self._holder(claim, device, counted):
            raise _StillHeld(f"{claim} was given {device.uuid}, which {holder} still has", "it is asked for again")
        if holder := self._node.holder(device):
            raise ClaimError(f"{claim} was given {device.uuid}, which {holder} still has", "it is asked for again")
        self._check_sharing(claim, device, counted, sharing)
        return prepared._replace(parts=device.parts, sharing=sharing, memory_bytes=result.memory_bytes)

    def _check_sharing(self, claim: ClaimName, device: DraDevice, result: Result, sharing: DeviceConfig) -> None:
        """Raise ClaimError where a device is not shared as a claim was given it, or asks for it."""
        shared_bytes = 0 if device.share is None else device.share.memory_bytes
        if bool(shared_bytes) != bool(result.memory_bytes):
            how = "is shared by its memory by now" if shared_bytes else "is not shared by its memory any more"
            raise ClaimError(f"{claim} was given {device.uuid}, which {how}", "make the claim anew")
        if device.share is not None and result.shares > device.share.parts:
            words = f"{claim} was given {result.shares} shares of {device.uuid}, which has {device.share.parts} to give"
            raise ClaimError(words, "it is asked for again")
        if result.memory_bytes > shared_bytes:
            given, left = quantity(result.memory_bytes), quantity(shared_bytes)
            words = f"{claim} was given {given} of the memory of {device.uuid}, which has {left} to give"
            raise ClaimError(words, "make the claim anew")
        for other, each in self._store.held():
            if other != claim and each.uuid == device.uuid and each.sharing != sharing:
                words = f"{claim} asks for {sharing} of {device.uuid}, and {other} has it with {each.sharing}"
                raise _StillHeld(words, "it is asked for again")
        if sharing != AS_IT_IS and device.share is not None and device.share.mounts:
            raise ClaimError(
                f"{claim} asks for {sharing} of {device.uuid}, which the node shares through MPS as it is declared",
                "leave the config out, or ask for a gpu without shares",
            )

    def _is_shared_as(self, record: Record, claim: ClaimName, results: tuple[Result, ...]) -> bool:
        """Whether a record has what the claim says of sharing; a device that is not known now is as it was."""
        have = {(each.request, each.device, each.share_id): each.sharing for each in record.devices}
        return all(
            have[each.request, each.device, each.share_id] == sharing_of(claim, each, device)
            for each in results
            if (device := self._node.devices.get(each.device)) is not None and not each.is_admin
        )

    def _holder(self, claim: ClaimName, device: DraDevice, result: Result) -> str:
        """Return which other claim keeps this one from a device, "" where none does. Shares of one count together."""
        taken, taken_bytes = result.shares, result.memory_bytes
        for holder, each in self._store.held():
            if holder == claim or not (each.uuid in device.parts or device.uuid in each.parts):
                continue  # two MIG devices of one GPU have the GPU in common, and neither keeps the other away
            taken, taken_bytes = taken + each.shares, taken_bytes + each.memory_bytes
            share = device.share if each.uuid == device.uuid and each.share_id and result.share_id else None
            is_alike = bool(each.memory_bytes) == bool(result.memory_bytes)
            if share is None or not is_alike or taken_bytes > share.memory_bytes or taken > share.parts:
                return str(holder)
        return ""

    async def unprepare(self, request: api.NodeUnprepareResourcesRequest) -> api.NodeUnprepareResourcesResponse:
        """Give claims back; one that is not known has been given back."""
        return api.NodeUnprepareResourcesResponse(
            claims=tuple(api.UnpreparedClaim(key=each.uid, value=self._unprepare(each)) for each in request.claims)
        )

    def _unprepare(self, asked: api.Claim) -> api.NodeUnprepareResourceResponse:
        if not is_uid(asked.uid):
            return api.NodeUnprepareResourceResponse()
        claim = ClaimName(asked.namespace, asked.name, asked.uid)
        try:
            was_known = self._store.remove(asked.uid)
        except ClaimError as error:
            self._log.warning("a claim cannot be given back", claim=str(claim), problem=error.message)
            return api.NodeUnprepareResourceResponse(error=error.message)
        self._given.discard(asked.uid)
        self._log.standing(self._topic(claim))
        if was_known:
            self._log.info("claim given back", claim=str(claim))
        if was_known or asked.uid in self.pending:
            self.pending.discard(asked.uid)
            self._given_back.set()
            self._given_back = asyncio.Event()
            self._node.changed()
        return api.NodeUnprepareResourceResponse()


def _named(record: Record) -> tuple[api.Device, ...]:
    return tuple(map(_device, record.devices))


def _device(prepared: PreparedDevice) -> api.Device:
    names = [prepared.uuid]  # first: the kubelet shows its health by it
    if prepared.sharing.mps is not None:
        names.append(mps_name(prepared.uuid))
    if prepared.memory_bytes:
        names.append(memory_name(prepared.memory_part))
    return answer(prepared, map(qualified, names))


def answer(prepared: PreparedDevice, names: Iterable[str]) -> api.Device:
    """Return the answer for a device that engines are asked for by these names."""
    return api.Device(
        request_names=(prepared.request,),
        pool_name=prepared.pool,
        device_name=prepared.device,
        cdi_device_ids=tuple(names),
        share_id=prepared.share_id,
    )
