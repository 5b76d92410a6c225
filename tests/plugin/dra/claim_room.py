"""A service of claims with a node, a folder and the API's claims, all in memory but the folder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from plugin.base.errors import ClaimError, ClusterError, KubeletError
from plugin.base.log import Logger
from plugin.dra import messages as api
from plugin.dra.devices import DRIVER, DraDevice
from plugin.dra.service import ClaimService, Health
from plugin.dra.store import ClaimStore, Record

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.dra.claims import ClaimName

GIB = 2**30
ONE, TWO, THREE = (f"11111111-aaaa-bbbb-cccc-00000000000{number}" for number in (1, 2, 3))


def device(number: int, unhealthy: str = "") -> DraDevice:
    uuid = f"GPU-{number}"
    return DraDevice(uuid.lower(), uuid, (uuid,), (), {"type": {"string": "gpu"}}, {}, unhealthy)


def mig(number: int) -> DraDevice:
    uuid = f"MIG-{number}"
    return DraDevice(uuid.lower(), uuid, (uuid, "GPU-0"), (), {"type": {"string": "mig"}}, {})


def claim(uid: str, *devices: str, **result: object) -> dict[str, Any]:
    """Return a claim as the scheduler leaves it."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": "n1", "device": each, **result} for each in devices]
    others = [{"request": "nic", "driver": "dra.net", "pool": "n1", "device": "nic-0"}]
    allocation = {"devices": {"results": [*results, *others]}}
    return {"metadata": {"uid": uid}, "status": {"allocation": allocation} if devices else {}}


@dataclass
class FakeNode:
    devices: dict[str, DraDevice] = field(default_factory=lambda: {f"gpu-{n}": device(n) for n in range(4)})
    held: dict[str, str] = field(default_factory=dict)
    silent: bool = False
    unshared: str = ""  # why devices are not shared yet as claims ask
    changes: int = 0

    async def look_again(self) -> None:
        if self.silent:
            raise KubeletError("the kubelet does not answer")
        await asyncio.sleep(0)

    def holder(self, device: DraDevice) -> str:
        return self.held.get(device.uuid, "")

    def prepare(self) -> None:
        """Nothing is written."""

    async def ready(self, record: Record) -> Record:
        """Return it: whole GPUs are there."""
        return record

    async def shared(self, record: Record) -> None:
        if self.unshared:
            raise ClaimError(self.unshared)

    def prepared(self, record: Record) -> None:
        """Nobody keeps a history."""

    def changed(self) -> None:
        self.changes += 1


@dataclass
class Room:
    """A service with its node, its folder and the API's claims."""

    folder: Path
    node: FakeNode = field(default_factory=FakeNode)
    claims: dict[str, dict[str, Any] | ClusterError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start()

    def start(self, patience_s: float = 0.0) -> None:
        """Begin again, as a daemon that was killed does."""
        self.store = ClaimStore(self.folder, Logger())
        self.store.load()
        self.service = ClaimService(self.node, self.store, Health(), self._read, Logger(), patience_s=patience_s)

    def _read(self, name: ClaimName) -> dict[str, Any]:
        found = self.claims.get(name.name, ClusterError("not found", status=404))
        if isinstance(found, ClusterError):
            raise found
        return found

    def held(self) -> dict[str, str]:
        """Return which claim has which device."""
        return {each.uuid: claim.name for claim, each in self.store.held()}

    def prepare(self, *asked: tuple[str, str]) -> dict[str, api.NodePrepareResourceResponse]:
        names = tuple(api.Claim(namespace="ml", name=name, uid=uid) for name, uid in asked)
        answer = asyncio.run(self.service.prepare(api.NodePrepareResourcesRequest(claims=names)))
        assert [each.key for each in answer.claims] == [uid for _, uid in asked]
        return {each.key: each.value for each in answer.claims if each.value is not None}

    def unprepare(self, uid: str) -> str:
        asked = api.NodeUnprepareResourcesRequest(claims=(api.Claim(namespace="ml", name="any", uid=uid),))
        (answer,) = asyncio.run(self.service.unprepare(asked)).claims
        assert answer.key == uid
        return "" if answer.value is None else answer.value.error


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)
