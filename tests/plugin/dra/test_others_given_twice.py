"""Whatever happens in whatever order, no unit of another device is given twice: by the device plugin, and by claims."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lab.sysfs import Tree
from plugin.base.errors import RequestError
from plugin.base.log import Logger
from plugin.devices.allocation.table import EMPTY_TABLE, allocate
from plugin.dra import driver as shared
from plugin.dra import messages as api
from plugin.dra.devices import Features
from plugin.dra.others import driver as module
from plugin.dra.store import Published
from plugin.kubelet.cdi_names import OTHERS
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from plugin.kubelet.pod_resources.holdings import HoldingsView
from plugin.settings.node_config import DRA, NodeConfig
from tests.plugin.other_devices.test_plan import look, made

if TYPE_CHECKING:
    from plugin.dra.claims import ClaimName
    from plugin.dra.devices import DraDevice

UNITS = {"one": 1, "few": 4}
NAMES = st.sampled_from(sorted(UNITS))
NUMBERS = st.integers(0, 4)
LATER_S = 10.0  # more than a kubelet that starts lists nobody
SHARE = "00000000-0000-0000-0000-00000000000{}"


class Slices:
    """Stands for who writes slices: remembers the most that was ever published of each device."""

    features, is_settled = Features(), True

    def __init__(self, *_: object, **_keys: object) -> None:
        self.published: dict[str, int] = {}

    def publish(self, devices: tuple[DraDevice, ...]) -> None:
        for each in devices:
            parts = 1 if each.share is None else each.share.parts
            self.published[each.name] = max(parts, self.published.get(each.name, 0))

    def close(self) -> None:
        """Nothing runs."""


class Registration(Slices):
    """Stands for who has the kubelet find the driver."""

    is_registered = True

    async def run(self) -> None:
        """Nobody comes."""

    def stop(self) -> None:
        """Nothing runs."""


class Node(RuleBasedStateMachine):
    """One node with a device and a count of four, a kubelet that lists late, and a scheduler that sees old slices."""

    @initialize()
    def start(self) -> None:
        self.loop, self.later_s = asyncio.new_event_loop(), 0.0
        clock = self.loop.time
        self.loop.time = lambda: clock() + self.later_s  # type: ignore[method-assign]
        self.folder = Path(tempfile.mkdtemp())
        classes = (made(name, match=None, unit={"count": count}) for name, count in UNITS.items())
        self.plan = look(Tree(self.folder), *classes)
        self.is_by_claims = False
        self.pods: dict[int, tuple[str, str]] = {}  # by the device plugin: class and unit
        self.listed: dict[int, tuple[str, str]] = {}
        self.allocated: dict[int, tuple[str, int]] = {}  # claim → device and shares, as the API has it
        self.prepared: dict[int, tuple[str, int]] = {}
        self.published: dict[str, int] = {}
        self.loop.run_until_complete(self.begin())

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.end())
            self.loop.close()

    async def begin(self) -> None:
        """Start a daemon: it knows what is on the disk, and what the kubelet says."""
        self.view = HoldingsView(self._list, lambda *_: self.show(), lambda: False, Logger())
        config = NodeConfig(state_folder=self.folder, cdi_folder=self.folder / "cdi", interface=DRA)
        node = self

        class Driver(module.OtherDriver):
            def _read_claim(self, claim: ClaimName) -> dict[str, Any]:
                return node.read(claim)

        with patch.object(shared, "SliceKeeper", Slices), patch.object(shared, "Registration", Registration):
            context = shared.DriverContext(
                config, Published("", "n1"), Logger(), {}, self.view.kubelet_came, changed=self.show
            )
            self.driver = Driver(context, self.view)
        self.driver.service._patience_s = 0.0
        await self.view.ask_now(1.0)

    async def end(self) -> None:
        self.view.stop()
        await self.driver.close()

    def read(self, claim: ClaimName) -> dict[str, Any]:
        device, shares = self.allocated[int(claim.name)]
        result: dict[str, Any] = {"request": "r", "driver": OTHERS, "pool": "n1", "device": device}
        if UNITS[device] > 1:
            result |= {"shareID": SHARE.format(claim.name), "consumedCapacity": {"shares": str(shares)}}
        return {"metadata": {"uid": f"uid-{claim.name}"}, "status": {"allocation": {"devices": {"results": [result]}}}}

    async def _list(self, _deadline_s: float) -> tuple[DeviceAssignment, ...]:
        return tuple(
            DeviceAssignment(PodContainer("ml", f"pod-{number}", "c"), f"example.com/{name}", (unit,))
            for number, (name, unit) in self.listed.items()
        )

    def show(self) -> None:
        """Publish, or offer to the kubelet, as the daemon does after each change."""
        self.driver.show(self.plan, is_offered=self.is_by_claims)
        left = self.driver.left(self.plan).resources
        tables = {name: left[f"example.com/{name}"].table for name in UNITS}
        self.tables = dict.fromkeys(UNITS, EMPTY_TABLE) if self.is_by_claims else tables
        slices: Any = self.driver._slices
        self.published |= {name: max(most, self.published.get(name, 0)) for name, most in slices.published.items()}

    @rule()
    def change_over(self) -> None:
        self.is_by_claims = not self.is_by_claims
        self.show()

    @rule(name=NAMES, number=NUMBERS)
    def a_pod_asks_the_device_plugin(self, name: str, number: int) -> None:
        """The kubelet may still have an old list, and has given none of it."""
        unit = f"{name}::{number % UNITS[name]}"
        if (name, unit) in self.pods.values():
            return
        try:
            allocate(self.tables[name], [unit])
        except RequestError:
            return
        self.pods[max(self.pods, default=0) + 1] = name, unit
        self.loop.run_until_complete(self._given(unit))

    async def _given(self, unit: str) -> None:
        self.view.changed([unit])

    @rule()
    def the_kubelet_lists_its_pods(self) -> None:
        self.later_s += LATER_S
        self.listed = dict(self.pods)
        self.loop.run_until_complete(self.view.ask_now(1.0))

    @rule()
    def the_kubelet_starts(self) -> None:
        """It lists nobody for a moment; who has what is in its checkpoint."""
        self.loop.run_until_complete(self.view.ask_now(1.0))  # it goes on asking while anybody has anything
        self.listed = {}
        self.loop.run_until_complete(self.view.ask_now(1.0))

    @precondition(lambda self: self.pods)
    @rule(number=NUMBERS)
    def a_pod_ends(self, number: int) -> None:
        key = sorted(self.pods)[number % len(self.pods)]
        self.pods.pop(key)
        self.listed.pop(key, None)

    @precondition(lambda self: self.published)
    @rule(claim=NUMBERS, name=NAMES, shares=st.integers(1, 4), is_soon=st.booleans())
    def the_scheduler_allocates(self, claim: int, name: str, shares: int, *, is_soon: bool) -> None:
        shares = shares if UNITS[name] > 1 else 1
        taken = sum(count for device, count in self.allocated.values() if device == name)
        if claim not in self.allocated and taken + shares <= self.published.get(name, 0):
            self.allocated[claim] = name, shares
            if is_soon:
                self.prepare(claim)

    @precondition(lambda self: self.allocated)
    @rule(number=NUMBERS)
    def the_kubelet_has_a_claim_prepared(self, number: int) -> None:
        self.prepare(sorted(self.allocated)[number % len(self.allocated)])

    def prepare(self, claim: int) -> None:
        asked = api.Claim(namespace="ml", name=str(claim), uid=f"uid-{claim}")
        request = api.NodePrepareResourcesRequest(claims=(asked,))
        (answer,) = self.loop.run_until_complete(self.driver.service.prepare(request)).claims
        if answer.value is not None and not answer.value.error:
            self.prepared[claim] = self.allocated[claim]

    @precondition(lambda self: self.allocated)
    @rule(number=NUMBERS)
    def a_claim_goes(self, number: int) -> None:
        claim = sorted(self.allocated)[number % len(self.allocated)]
        asked = api.Claim(namespace="ml", name=str(claim), uid=f"uid-{claim}")
        self.prepared.pop(claim, None)
        request = api.NodeUnprepareResourcesRequest(claims=(asked,))
        self.loop.run_until_complete(self.driver.service.unprepare(request))
        del self.allocated[claim]

    @rule()
    def the_daemon_is_killed(self) -> None:
        """By the time that another one asks, the kubelet has listed what was given before."""
        self.listed = dict(self.pods)
        self.loop.run_until_complete(self.end())
        self.loop.run_until_complete(self.begin())

    @invariant()
    def no_unit_is_given_twice(self) -> None:
        for name, count in UNITS.items() if hasattr(self, "pods") else ():
            by_plugin = sum(each == name for each, _ in self.pods.values())
            by_claims = sum(shares for each, shares in self.prepared.values() if each == name)
            assert by_plugin + by_claims <= count, f"{name}: pods {self.pods}, claims {self.prepared}"


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


@pytest.mark.parametrize(("name", "left"), [("one", {"few"}), ("few", {"one", "few"})])
def test_what_a_kubelet_that_starts_does_not_list_yet_is_published_when_it_is_free(name: str, left: set[str]) -> None:
    node = Node()
    node.start()
    node.a_pod_asks_the_device_plugin(name=name, number=0)
    node.the_kubelet_lists_its_pods()
    node.the_kubelet_starts()
    node.change_over()
    assert {each for each, parts in node.published.items() if parts} == left
    assert node.published["few"] == (3 if name == "few" else 4)
    waited = [node.driver.is_waiting]
    node.a_pod_ends(number=0)
    node.the_kubelet_lists_its_pods()
    assert node.published == UNITS
    assert [*waited, node.driver.is_waiting] == [True, False], "the kubelet is asked again until the pod has ended"
    node.teardown()


def test_until_the_kubelet_says_who_has_units_of_a_claims_device_none_is_given_away() -> None:
    """Which of the units are the claim's was a guess by then, and among those that were left were some too many."""
    node = Node()
    node.start()
    node.a_pod_asks_the_device_plugin(name="few", number=0)
    node.change_over()
    node.the_scheduler_allocates(claim=0, name="few", shares=2, is_soon=True)
    node.change_over()
    node.loop.run_until_complete(node.end())

    async def kubelet_asked_too_early() -> bool:
        with patch.object(HoldingsView, "ask_now", AsyncMock(return_value=False)):
            await node.begin()
        node.show()
        return any(each.unhealthy == "" for each in node.tables["few"].entries.values())

    assert not node.loop.run_until_complete(kubelet_asked_too_early())
    node.the_kubelet_lists_its_pods()
    assert [unit for unit, each in node.tables["few"].entries.items() if not each.unhealthy] == ["few::0", "few::3"]
    node.teardown()


def test_where_shares_are_not_kept_a_claim_has_nothing_of_a_device_of_which_a_pod_has_a_share() -> None:
    node = Node()
    node.start()
    node.a_pod_asks_the_device_plugin(name="few", number=0)
    with patch.object(Slices, "features", Features(shares=False)):
        node.change_over()
        assert set(node.published) == {"one"}
        node.a_pod_ends(number=0)
        node.the_kubelet_lists_its_pods()
        assert node.published == {"one": 1, "few": 1}
    node.teardown()


def test_a_share_that_a_pod_was_given_since_the_last_look_is_no_claims() -> None:
    node = Node()
    node.start()
    device = node.driver.devices["few"]
    assert device.share is not None
    assert not node.driver.holder(device)
    node.a_pod_asks_the_device_plugin(name="few", number=0)
    assert node.driver.holder(device) == "a pod of a moment ago"
    assert not node.driver.holder(device._replace(share=device.share._replace(parts=3)))
    node.teardown()


def test_whoever_has_a_device_whole_has_all_shares_that_it_is_divided_into_by_now() -> None:
    node = Node()
    node.start()
    node.pods[1] = node.listed[1] = "few", "few"
    node.the_kubelet_lists_its_pods()
    node.change_over()
    assert set(node.published) == {"one"}
    assert node.driver.holder(node.driver.devices["few"]) == "ml/pod-1 as example.com/few"
    node.teardown()
