"""Whatever NVML says of links, a preference is answered: of nothing, of others, of too much, of contradictions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from plugin.devices.allocation.preference.choice import prefer
from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.snapshot import Snapshot
from plugin.driver.topology.facts import GpuLinks, LinkFacts, NvLink, Remote
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus, whole_table

COUNT = 5
UUIDS = st.sampled_from([*(gpu(index).uuid for index in range(COUNT + 1)), "", "GPU-other"])
ADDRESSES = st.sampled_from([*(gpu(index).pci_address for index in range(COUNT + 1)), "", "0000:c0:00.0"])
NVLINKS = st.none() | st.lists(st.builds(NvLink, st.sampled_from(Remote), ADDRESSES), max_size=6).map(tuple)
FABRICS = st.sampled_from([None, "", "a.1", "a.2"])
LEVELS = st.tuples(UUIDS, UUIDS, st.sampled_from([0, 10, 20, 30, 40, 50, 35, -1, 2**31]))
FACTS = st.builds(
    LinkFacts,
    st.lists(st.builds(GpuLinks, UUIDS, NVLINKS, FABRICS), max_size=8).map(tuple),
    st.lists(LEVELS, max_size=12).map(tuple),
)
NUMA_NODES = st.dictionaries(ADDRESSES, st.integers(0, 1))


@settings(deadline=None)
@given(FACTS, NUMA_NODES, st.sets(st.integers(0, COUNT - 1), min_size=1), st.data())
def test_an_answer_is_given_whatever_is_said(
    facts: LinkFacts, numa: dict[str, int], free: set[int], data: st.DataObject
) -> None:
    snapshot = Snapshot(VERSION, gpus(COUNT), links=facts)
    inventory = next_inventory(Inventory(), snapshot, DictTree(numa=numa))
    scores = inventory.topology.scores
    assert all(scores[a][b] == scores[b][a] >= 0 for a in range(COUNT) for b in range(COUNT))
    available = [gpu(index).uuid for index in sorted(free)]
    size = data.draw(st.integers(1, len(available)))
    required = data.draw(st.permutations(available))[: size // 2]
    preferred = prefer(whole_table(inventory), available, required, size)
    assert len(set(preferred.chosen)) == size
    assert set(required) <= set(preferred.chosen) <= set(available)
    assert preferred.cut_off == ""
