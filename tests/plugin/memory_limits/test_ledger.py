"""What was given, as far as it is remembered or the kubelet says so."""

from __future__ import annotations

import asyncio

from plugin.base.errors import KubeletError
from plugin.kubelet.cdi_names import MemoryPart
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from plugin.sharing.memory_limits.ledger import MemoryLedger
from tests.plugin.fakes import gpu

GIB, MIB = 1 << 30, 1 << 20
FIRST, SECOND = gpu(0).uuid, gpu(1).uuid


class Kubelet:
    """Says who has what, or nothing."""

    def __init__(self, *assignments: DeviceAssignment, is_up: bool = True) -> None:
        self.assignments = assignments
        self.is_up = is_up
        self.asked = 0

    async def list_assignments(self, _deadline_s: float) -> tuple[DeviceAssignment, ...]:
        self.asked += 1
        if not self.is_up:
            raise KubeletError("it does not answer")
        return self.assignments


def unit_bytes(uuid: str) -> int | None:
    return GIB if uuid in {FIRST, SECOND} else None


def given(count: int, uuid: str = FIRST, container: str = "c", first: int = 0) -> DeviceAssignment:
    ids = tuple(f"{uuid}/{number}" for number in range(first, first + count))
    return DeviceAssignment(PodContainer("ns", "pod", container), "example.com/gpu-mem", ids)


def find(ledger: MemoryLedger, memory: dict[str, int]) -> object:
    return asyncio.run(ledger.find(memory))


def test_an_allocation_is_found_without_asking() -> None:
    kubelet = Kubelet()
    ledger = MemoryLedger(kubelet.list_assignments, unit_bytes)
    ledger.allocated((f"{FIRST}/4", f"{FIRST}/5"))
    assert find(ledger, {FIRST: 2 * GIB}) == {FIRST: 2 * GIB}
    assert kubelet.asked == 0


def test_an_amount_that_nobody_was_given_is_no_allocation() -> None:
    ledger = MemoryLedger(Kubelet(given(1), given(3, SECOND, "other")).list_assignments, unit_bytes)
    ledger.allocated((f"{FIRST}/4", f"{FIRST}/5"))
    for memory in ({FIRST: 8 * GIB}, {FIRST: 2 * GIB - 1}, {SECOND: 2 * GIB}, {FIRST: 2 * GIB, SECOND: 3 * GIB}, {}):
        assert find(ledger, memory) is None


def test_what_a_claim_has_is_an_allocation_while_it_has_it() -> None:
    has = {MemoryPart(FIRST, 10 * GIB), MemoryPart(SECOND, 2 * GIB)}
    ledger = MemoryLedger(Kubelet().list_assignments, unit_bytes, lambda: has)
    assert find(ledger, {FIRST: 10 * GIB}) == {FIRST: 10 * GIB}
    assert find(ledger, {FIRST: 10 * GIB, SECOND: 2 * GIB}) is not None
    for memory in ({FIRST: 2 * GIB}, {FIRST: 10 * GIB - 1}, {}):
        assert find(ledger, memory) is None
    has.clear()
    assert find(ledger, {FIRST: 10 * GIB}) is None


def test_parts_that_claims_have_of_one_gpu_count_together() -> None:
    has = {
        MemoryPart(FIRST, 4 * GIB),
        MemoryPart(FIRST, 4 * GIB, 1),
        MemoryPart(FIRST, 2 * GIB),
        MemoryPart(SECOND, GIB),
    }
    ledger = MemoryLedger(Kubelet().list_assignments, unit_bytes, lambda: has)
    found = [size for size in range(1, 12) if find(ledger, {FIRST: size * GIB}) is not None]
    assert found == [2, 4, 6, 8, 10]
    assert find(ledger, {SECOND: 2 * GIB}) is None


def test_many_small_parts_of_a_gpu_cost_a_container_no_time() -> None:
    """By units of a MiB anybody with a quota of claims kept the daemon busy for half a minute with each start."""
    counted = 0

    class Counted(int):
        def __add__(self, other: int) -> Counted:
            nonlocal counted
            counted += 1
            return Counted(int(self) + other)

        __radd__ = __add__

    has = {MemoryPart(FIRST, Counted(size * MIB)) for size in range(3, 100)}
    ledger = MemoryLedger(Kubelet().list_assignments, unit_bytes, lambda: has)
    most = sum(range(3, 100)) * MIB
    for size, is_sum in ((most, True), (most - 3 * MIB, True), (most - MIB, False), (2 * MIB, False), (7 * MIB, True)):
        assert (find(ledger, {FIRST: size}) is not None) is is_sum
    assert counted < 10 * len(has)


def test_after_a_start_the_kubelet_knows() -> None:
    kubelet = Kubelet(given(2), given(9, gpu(7).uuid, "other"))
    ledger = MemoryLedger(kubelet.list_assignments, unit_bytes)
    assert find(ledger, {FIRST: 2 * GIB}) == {FIRST: 2 * GIB}
    assert find(ledger, {gpu(7).uuid: 9 * GIB}) is None


def test_what_the_kubelet_tells_in_parts_is_one_allocation() -> None:
    kubelet = Kubelet(*(given(1, first=number) for number in range(4)), given(3, container="other", first=4))
    ledger = MemoryLedger(kubelet.list_assignments, unit_bytes)
    assert find(ledger, {FIRST: GIB}) is None
    assert find(ledger, {FIRST: 7 * GIB}) is None
    assert find(ledger, {FIRST: 4 * GIB}) == {FIRST: 4 * GIB}
    assert find(ledger, {FIRST: 3 * GIB}) == {FIRST: 3 * GIB}


def test_a_kubelet_that_is_silent_knows_of_nothing() -> None:
    assert find(MemoryLedger(Kubelet(is_up=False).list_assignments, unit_bytes), {FIRST: GIB}) is None


def test_devices_of_other_kinds_are_not_remembered() -> None:
    ledger = MemoryLedger(Kubelet().list_assignments, unit_bytes)
    ledger.allocated((FIRST, f"{FIRST}::1", f"{gpu(7).uuid}/0"))
    assert find(ledger, {FIRST: GIB}) is None


def test_it_does_not_grow_for_ever() -> None:
    kubelet = Kubelet()
    ledger = MemoryLedger(kubelet.list_assignments, lambda _uuid: 1)
    for count in range(1, 1200):
        ledger.allocated((f"{gpu(count).uuid}/0",))
    assert find(ledger, {gpu(1199).uuid: 1}) is not None
    assert find(ledger, {gpu(1).uuid: 1}) is None
