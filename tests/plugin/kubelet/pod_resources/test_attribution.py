from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plugin.devices.sharing import device_of
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer, holders_by_uuid

GPU = "nvidia.com/gpu"
ONE, TWO = PodContainer("default", "a", "main"), PodContainer("default", "b", "main")
SHORT = st.sampled_from("abc")
GIVEN = st.lists(
    st.builds(
        DeviceAssignment,
        st.builds(PodContainer, SHORT, SHORT, SHORT),
        st.sampled_from([GPU, "rdma/nic"]),
        st.lists(st.sampled_from(["GPU-0", "GPU-1", "GPU-0::0", "GPU-0::1", "GPU-2::0"]), max_size=3).map(tuple),
    ),
    max_size=6,
)


def test_each_gpu_has_the_container_that_was_given_it() -> None:
    assignments = [
        DeviceAssignment(ONE, GPU, ("GPU-0", "GPU-1")),
        DeviceAssignment(TWO, GPU, ("GPU-2",)),
        DeviceAssignment(TWO, "rdma/nic", ("GPU-3",)),
    ]
    assert holders_by_uuid(assignments, [GPU]) == {"GPU-0": (ONE,), "GPU-1": (ONE,), "GPU-2": (TWO,)}


def test_shares_of_a_gpu_are_the_gpus() -> None:
    assignments = [DeviceAssignment(TWO, GPU, ("GPU-0::1",)), DeviceAssignment(ONE, GPU, ("GPU-0::0", "GPU-0::2"))]
    assert holders_by_uuid(assignments, [GPU]) == {"GPU-0": (ONE, TWO)}


def test_a_container_that_is_told_in_parts_is_one_holder() -> None:
    assignments = [
        DeviceAssignment(ONE, GPU, ("GPU-0",)),
        DeviceAssignment(ONE, GPU, ("GPU-0",)),
        DeviceAssignment(ONE, GPU, ()),
    ]
    assert holders_by_uuid(assignments, [GPU]) == {"GPU-0": (ONE,)}


def test_a_mig_device_is_its_own_in_whatever_resource() -> None:
    assignments = [
        DeviceAssignment(ONE, "nvidia.com/mig-1g.5gb", ("MIG-0::1",)),
        DeviceAssignment(TWO, "rdma/nic", ("MIG-0",)),
    ]
    assert holders_by_uuid(assignments, [GPU]) == {"MIG-0": (ONE, TWO)}


@given(GIVEN, st.randoms(use_true_random=False))
def test_every_pair_is_kept_and_the_order_of_the_answer_does_not_matter(
    assignments: list[DeviceAssignment], random: object
) -> None:
    found = holders_by_uuid(assignments, [GPU])
    pairs = {(device_of(name), each.holder) for each in assignments if each.resource == GPU for name in each.device_ids}
    assert {(uuid, holder) for uuid, holders in found.items() for holder in holders} == pairs
    assert sum(map(len, found.values())) == len(pairs)
    shuffled = list(assignments)
    random.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis gives a random.Random
    assert holders_by_uuid(shuffled, [GPU]) == found
