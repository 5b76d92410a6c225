"""What is remembered of allocations and devices, and to which pod an allocation is said to belong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.devices.allocation.preference.choice import Candidate, Preference, Rule
from plugin.devices.health.model import Class, Transition
from plugin.devices.health.model import FindingChange as HealthChange
from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.snapshot import LostGpu, Snapshot
from plugin.holdings.history.ledger import MAX_ALLOCATIONS, MAX_CHANGES, Ledger
from plugin.holdings.history.model import Allocation, Choice, Scored, remember_choice
from plugin.kubelet.pod_resources.attribution import CLAIM, DeviceAssignment, PodContainer
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

GPU = "nvidia.com/gpu"


def listing(*holders: tuple[str, str], resource: str = GPU) -> tuple[DeviceAssignment, ...]:
    """Return containers `main` of pods with the devices named by the letters of a word, one part for each."""
    return tuple(
        DeviceAssignment(PodContainer("default", pod, "main"), resource, (letter,))
        for pod, letters in holders
        for letter in letters
    )


def pods(ledger: Ledger) -> list[list[str]]:
    return [[claim.holder.pod for claim in one.claims] for one in ledger.allocations.values()]


def test_an_allocation_is_the_containers_that_is_listed_with_just_its_devices() -> None:
    ledger = Ledger(0)
    ledger.allocated(GPU, "ab", 1)
    ledger.allocated(GPU, "c", 2)
    ledger.listed(listing(("train", "ab"), ("infer", "c")), 3)
    assert pods(ledger) == [["train"], ["infer"]]
    assert not ledger.is_waiting


def test_claims_that_share_a_device_are_all_somebodys_at_the_same_time() -> None:
    ledger = Ledger(0)
    for number, name in enumerate(("one", "two")):
        ledger.allocated(f"{CLAIM}{name}", "a", number, is_sole=False)
    ledger.listed(
        (*listing(("train", "a"), resource=f"{CLAIM}one"), *listing(("infer", "a"), resource=f"{CLAIM}two")), 3
    )
    assert pods(ledger) == [["train"], ["infer"]]
    assert not [claim for one in ledger.allocations.values() for claim in one.claims if claim.gone_at is not None]


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param(listing(("train", "a")), id="less devices"),
        pytest.param(listing(("train", "abc")), id="more devices"),
        pytest.param(listing(("train", "ab"), resource="example.com/other"), id="another resource"),
        pytest.param(listing(("train", "a"), ("other", "b")), id="two containers together"),
        pytest.param((), id="nobody"),
    ],
)
def test_nothing_else_is_concluded(listed: tuple[DeviceAssignment, ...]) -> None:
    ledger = Ledger(0)
    ledger.allocated(GPU, "ab", 1)
    ledger.listed(listed, 2)
    assert pods(ledger) == [[]]
    assert ledger.is_waiting


def test_what_was_listed_before_the_allocation_says_nothing_of_it() -> None:
    ledger = Ledger(0)
    ledger.allocated(GPU, "a", 5)
    ledger.listed(listing(("before", "a")), 4)
    assert pods(ledger) == [[]]


def test_an_init_containers_allocation_is_not_its_pods_main_containers() -> None:
    ledger = Ledger(0)
    ledger.allocated(GPU, "a", 1)
    ledger.allocated(GPU, "a", 1.01)
    ledger.listed(listing(("train", "a")), 2)
    assert pods(ledger) == [[], ["train"]]


def test_a_device_that_is_listed_twice_is_ambiguous() -> None:
    ledger = Ledger(0)
    ledger.allocated(GPU, "a", 1)
    ledger.listed(listing(("one", "a"), ("two", "a")), 2)
    assert pods(ledger) == [["one", "two"]]


def test_an_allocation_in_doubt_is_not_joined() -> None:
    ledger = Ledger(0)
    ledger.allocated(GPU, "a", 1, is_joinable=False)
    ledger.listed(listing(("before", "a")), 2)
    assert pods(ledger) == [[]]
    after = Ledger(3)
    after.begin_with(ledger.everything())
    after.listed(listing(("before", "a")), 4)
    assert pods(after) == [[]]


def test_a_container_goes_and_may_be_listed_again_until_somebody_else_is_given_its_devices() -> None:
    def gone(ledger: Ledger) -> list[float | None]:
        return [claim.gone_at for one in ledger.allocations.values() for claim in one.claims]

    ledger = Ledger(0)
    ledger.allocated(GPU, "a", 1)
    ledger.listed(listing(("train", "a")), 2)
    ledger.listed((), 3)
    ledger.listed((), 4)
    assert gone(ledger) == [3]
    ledger.listed(listing(("train", "a")), 5)
    assert gone(ledger) == [None]
    ledger.allocated(GPU, "a", 6)
    assert gone(ledger) == [6]
    ledger.listed(listing(("train", "a")), 7)
    assert (gone(ledger), pods(ledger)) == ([6, None], [["train"], ["train"]])


def test_a_pod_that_is_found_after_a_restart_is_not_certain() -> None:
    before = Ledger(0)
    before.allocated(GPU, "a", 1)
    after = Ledger(10)
    after.begin_with(before.everything())
    after.allocated(GPU, "b", 11)
    after.listed(listing(("train", "a"), ("infer", "b")), 12)
    assert [claim.is_certain for one in after.allocations.values() for claim in one.claims] == [False, True]


def preference(size: int, *free: str) -> Preference:
    groups = [free[start : start + size] for start in range(0, len(free), size)]
    return Preference(groups[0], Rule.BEST_GROUP, tuple(Candidate(tuple(group), 100) for group in groups), 7)


def choice(size: int, free: str, at: float) -> Choice:
    return remember_choice(preference(size, *free), free, (), size, at)


@pytest.mark.parametrize(
    ("asked", "allocated", "is_joined"),
    [
        pytest.param(choice(2, "abcd", 1), "ab", True, id="what was preferred"),
        pytest.param(choice(2, "abcd", 1), "cd", True, id="others of the free ones"),
        pytest.param(choice(2, "abcd", 1), "abc", False, id="another number"),
        pytest.param(choice(2, "abcd", 1), "ax", False, id="one that was not free"),
        pytest.param(choice(2, "abcd", -60), "ab", False, id="a minute later"),
    ],
)
def test_a_preference_belongs_to_the_allocation_after_it(asked: Choice, allocated: str, *, is_joined: bool) -> None:
    ledger = Ledger(0)
    ledger.preferred(GPU, asked)
    ledger.allocated("example.com/other", "ab", 1)
    ledger.allocated(GPU, allocated, 1)
    ledger.allocated(GPU, "ab", 1)
    assert [one.choice is not None for one in ledger.allocations.values()] == [False, is_joined, False]


def test_a_choice_keeps_its_candidates() -> None:
    kept = choice(2, "abcd", 1)
    assert kept.scored() == (Scored(("a", "b"), 100), Scored(("c", "d"), 100))
    assert (kept.free, kept.left_off, kept.rule) == (4, 0, "BEST_GROUP")


def test_of_a_big_machine_the_first_candidates_are_kept() -> None:
    free = [f"GPU-{number}" for number in range(640)]
    kept = remember_choice(preference(4, *free), free, (), 4, 1)
    assert (len(kept.scored()), kept.left_off, kept.free) == (16, 144, 640)
    assert set(kept.available) == {device for one in kept.scored() for device in one.devices}


def test_only_the_last_ones_are_kept_and_forgotten_ones_do_not_come_back() -> None:
    ledger = Ledger(0)
    ledger.allocated(GPU, ["first"], 1)
    for number in range(MAX_ALLOCATIONS):
        ledger.allocated(GPU, [f"x{number % 8}"], 2)
    ledger.listed((DeviceAssignment(PodContainer("default", "train", "main"), GPU, ("first",)),), 3)
    assert len(ledger.allocations) == MAX_ALLOCATIONS
    assert next(iter(ledger.allocations)) == 2
    assert ledger.take_fresh() is not None


def test_what_is_to_be_written_is_bounded_too() -> None:
    ledger = Ledger(0)
    for number in range(5000):
        ledger.refused(GPU, ["a"], number, "no")
    assert ledger.has_fresh
    assert ledger.take_fresh() is None
    assert (ledger.has_fresh, ledger.take_fresh()) == (False, [])


def seen(count: int, *lost: int) -> Inventory:
    known = next_inventory(Inventory(), Snapshot(VERSION, gpus(count)), DictTree())
    here = tuple(gpu(index) for index in range(count) if index not in lost)
    gone = tuple(LostGpu(index, gpu(index).uuid, "gpu is lost") for index in lost)
    return next_inventory(known, Snapshot(VERSION, here, gone), DictTree())


def closed(cause: str, reason: str) -> Transition:
    return Transition(gpu(0).uuid, HealthChange.CLOSED, cause, Class.RESET, reason, "now")


def test_states_of_devices_are_told_once_each_and_recovery_with_its_evidence() -> None:
    ledger, uuid = Ledger(0), gpu(0).uuid
    for inventory, transitions in (
        (seen(1), ()),
        (seen(1), ()),
        (seen(1, 0), ()),
        (seen(1, 0), ()),
        (seen(1), (closed("xid 48", "the gpu was reset"),)),
    ):
        ledger.observed(inventory, transitions, 1)
    told = [(one.what, one.reason) for one in ledger.changes[uuid]]
    assert told == [
        ("seen", ""),
        ("unhealthy", "gpu is lost"),
        ("closed", "the gpu was reset"),
        ("healthy", "xid 48: the gpu was reset"),
    ]
    assert ledger.indices == {uuid: 0}


def test_a_restart_tells_no_state_again() -> None:
    before = Ledger(0)
    before.observed(seen(2, 1), (), 1)
    before.note("released", "released since today", 2)
    after = Ledger(5)
    after.note("released", "released since today", 6)
    after.begin_with(before.everything())
    after.observed(seen(2, 1), (), 7)
    assert after.changes == before.changes
    assert after.take_fresh() != []


def test_of_each_device_the_last_changes_are_kept_and_always_its_state() -> None:
    ledger, uuid = Ledger(0), gpu(0).uuid
    ledger.observed(seen(1, 0), (), 1)
    for number in range(3 * MAX_CHANGES):
        ledger.observed(seen(1, 0), (closed(f"xid {number}", "gone"),), 2)
    assert len(ledger.changes[uuid]) == MAX_CHANGES
    state = ledger.state_of(uuid)
    assert state is not None
    assert (state.what, state.at) == ("unhealthy", 1)
    assert ledger.changes[uuid][-1].cause == f"xid {3 * MAX_CHANGES - 1}"


STEPS = st.one_of(
    st.tuples(st.just("allocate"), st.sets(st.sampled_from("abcd"), min_size=1).map(sorted).map(tuple)),
    st.tuples(st.just("list"), st.sets(st.sampled_from("abcd")).map(sorted).map(tuple)),
    st.tuples(st.just("restart"), st.just(())),
)


@given(st.lists(STEPS, max_size=30))
def test_whatever_happens_a_listed_container_is_the_last_that_its_devices_were_given_to(
    steps: list[tuple[str, tuple[str, ...]]],
) -> None:
    """Held against an account of its own: for each device, the number of its last allocation."""
    ledger, last = Ledger(0), dict[str, int]()
    count = 0
    for at, (what, devices) in enumerate(steps, 1):
        if what == "allocate":
            count += 1
            ledger.allocated(GPU, devices, at)
            last.update(dict.fromkeys(devices, count))
        elif what == "list":
            claimed = {one.number for one in ledger.allocations.values() if one.claims}
            ledger.listed(listing((f"pod{at}", "".join(devices))), at)
            for one in ledger.allocations.values():
                if one.claims and one.number not in claimed:
                    assert one.devices == devices
                    assert {last[device] for device in devices} == {one.number}
        else:
            written = ledger.everything()
            ledger = Ledger(at)
            ledger.begin_with(written)
            assert ledger.everything() == written
    assert [one.number for one in ledger.allocations.values()] == list(range(1, count + 1))


def test_what_happens_before_the_file_is_read_comes_after_it() -> None:
    before = Ledger(0)
    before.allocated(GPU, "a", 1)
    after = Ledger(5)
    after.allocated(GPU, "b", 6)
    after.begin_with(before.everything())
    after.listed(listing(("old", "a"), ("new", "b")), 7)
    assert [
        (one.number, one.devices, pod) for one, (pod,) in zip(after.allocations.values(), pods(after), strict=True)
    ] == [
        (1, ("a",), "old"),
        (2, ("b",), "new"),
    ]
    assert after.take_fresh() is None


def test_a_long_reason_is_clipped() -> None:
    ledger = Ledger(0)
    ledger.refused(GPU, ["x" * 1000], 1, "y" * 1000)
    (one,) = ledger.allocations.values()
    assert isinstance(one, Allocation)
    assert (len(one.devices[0]), len(one.refused)) == (63, 300)


def test_what_happens_to_a_device_beside_its_state_leaves_the_state() -> None:
    ledger = Ledger(0)
    ledger.observed(next_inventory(Inventory(), Snapshot(VERSION, gpus(1)), DictTree()), (), 1)
    ledger.happened(gpu(0).uuid, "over share", "team/a uses too much", 2)
    state = ledger.state_of(gpu(0).uuid)
    assert state is not None
    assert state.what == "seen"
    assert [each.what for each in ledger.changes[gpu(0).uuid]] == ["seen", "over share"]
