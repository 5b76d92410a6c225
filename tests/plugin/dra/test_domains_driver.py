"""The driver of ComputeDomains in memory: what it asks of the API, and what it remembers when that refuses late."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, patch

from plugin.base.log import Logger
from plugin.dra import driver as shared
from plugin.dra import messages as api
from plugin.dra.domains import driver as module
from plugin.dra.store import Published
from plugin.settings.node_config import DRA, NodeConfig
from plugin.sharing.imex import Imex
from tests.plugin.dra.test_domains import CLAIM, CLIQUE, UID, claim, domain, inventory
from tests.plugin.dra.test_others_given_twice import Registration, Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plugin.dra.devices import DraDevice
    from plugin.publication.node_object.api.messages import Request

NODE = "rack1-03"
ASKED = api.NodePrepareResourcesRequest(claims=(api.Claim(namespace=CLAIM.namespace, name=CLAIM.name, uid=CLAIM.uid),))
MOST_LOOKS = 12  # at a domain, until a claim is refused


class Told(Slices):
    """Stands for who writes slices: the domains that were published, of which the API has all, or never any."""

    is_settled, problem = True, "it is written"

    def __init__(self, *_: object, **_keys: object) -> None:
        self.domains: list[str] = []

    def publish(self, devices: tuple[DraDevice, ...]) -> None:
        self.domains += [each.attributes.get("domain", {}).get("string", "") for each in devices]


class Untold(Told):
    """What is published is not what the API has."""

    is_settled = False


class Cluster:
    """Answers for the claim, and for its domain by what a test says; counts how often that was asked for."""

    def __init__(self, *_: object) -> None:
        self.looks = 0
        self.has_node: Callable[[int], bool] = lambda _number: False
        self.slices = Told()

    def ask(self, request: Request) -> dict[str, Any]:
        if "/computedomains/" not in request.path:
            return claim()
        self.looks += 1
        return domain((NODE, CLIQUE)) if self.has_node(self.looks) else domain()

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def no_time() -> Iterator[None]:
    """Have the time of a running loop pass by sleeping alone."""
    loop, asleep = asyncio.get_running_loop(), asyncio.sleep
    now = loop.time()

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        await asleep(0)

    with patch.object(loop, "time", lambda: now), patch.object(asyncio, "sleep", sleep):
        yield


def prepare(folder: Path, cluster: Cluster, *, has_channel: bool = True) -> tuple[str, list[str]]:
    """Return what is said against the claim, and the domains of records that are left."""

    async def asked() -> tuple[str, list[str]]:
        config = NodeConfig(
            state_folder=folder, cdi_folder=folder / "cdi", kubelet_root=folder, interface=DRA, compute_domains=True
        )
        context = shared.DriverContext(config, Published("", NODE), Logger(), {}, lambda: None)
        driver = module.DomainDriver(context, folder / "nvidia-imex-ctl")
        driver.show(inventory(CLIQUE, has_channel=has_channel), is_offered=True)
        with no_time():
            (answer,) = (await driver.service.prepare(ASKED)).claims
        left = [each.domain for _, each in driver.store.held()]
        await driver.close()
        assert answer.value is not None
        return answer.value.error, left

    with (
        patch.object(shared, "ClusterApi", lambda *_: cluster),
        patch.object(shared, "SliceKeeper", lambda *_, **_keys: cluster.slices),
        patch.object(shared, "Registration", Registration),
        patch.object(Imex, "require_ready", AsyncMock()),
    ):
        return asyncio.run(asked())


def test_a_node_that_waits_for_its_domain_asks_ever_more_seldom(tmp_path: Path) -> None:
    """All nodes of a domain wait at once, and each answer names all of them."""
    cluster = Cluster()
    said, left = prepare(tmp_path, cluster)
    assert "has not put rack1-03" in said
    assert left == []
    assert 2 < cluster.looks <= MOST_LOOKS


def test_a_claim_whose_domain_has_the_node_is_prepared(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.has_node = lambda _number: True
    assert prepare(tmp_path, cluster) == ("", [UID])


def test_a_domain_that_goes_while_the_slice_is_written_is_not_remembered(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.has_node = lambda number: number == 1
    said, left = prepare(tmp_path, cluster)
    assert "has not put rack1-03" in said
    assert left == []


def test_a_domain_is_read_again_after_the_slice_says_it_and_not_before_the_api_has_that(tmp_path: Path) -> None:
    """Else the controller could take the node for free, and the node its domain for one that is there."""
    cluster, seen = Cluster(), list[list[str]]()

    def look(_number: int) -> bool:
        seen.append([*cluster.slices.domains])
        return True

    cluster.has_node = look
    assert prepare(tmp_path, cluster) == ("", [UID])
    assert seen == [[""], ["", UID]]

    untold = Cluster()
    untold.slices, untold.has_node = Untold(), lambda _number: True
    said, left = prepare(tmp_path / "other", untold)
    assert "does not say yet whose node this is" in said
    assert (left, untold.looks) == ([], 1)


def test_a_node_whose_channel_is_gone_says_so_of_a_claim_that_it_had_prepared(tmp_path: Path) -> None:
    """After a reboot the module may have made none; the record stays, as a pod may run."""
    cluster = Cluster()
    cluster.has_node = lambda _number: True
    prepare(tmp_path, cluster)
    said, left = prepare(tmp_path, cluster, has_channel=False)
    assert "it has no IMEX channel 0" in said
    assert left == [UID]
