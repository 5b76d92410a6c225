"""After the planned writes the slices say what there is, whatever was there; without a need nothing is written."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plugin.dra.devices import CounterSet, DraDevice, Draw, Features, Share
from plugin.dra.slices import MOST_DEVICES, MOST_SETS, Owner, has_counters, kept_features, plan_writes

OWNER = Owner("n1", "uid-of-n1")
Json = dict[str, Any]


def device(number: int, unhealthy: str = "") -> DraDevice:
    uuid = f"GPU-{number}"
    return DraDevice(uuid.lower(), uuid, (uuid,), (), {"uuid": {"string": uuid}}, {}, unhealthy)


class Api:
    """Slices by name; each write is checked as the API server does."""

    def __init__(self) -> None:
        self.slices: dict[str, Json] = {}
        self.version = 0
        self.writes = 0

    def make(self, devices: list[DraDevice], *, has_taints: bool = True) -> None:
        features = Features(taints=has_taints)
        for write in plan_writes(OWNER, devices, list(self.slices.values()), features):
            self.writes += 1
            if write.document is None:
                del self.slices[write.name]
                continue
            assert write.is_new == (write.name not in self.slices)
            document = copy.deepcopy(write.document)
            if not write.is_new:
                assert document["metadata"]["resourceVersion"] == str(
                    self.slices[write.name]["metadata"]["resourceVersion"]
                )
            self.version += 1
            document["metadata"]["resourceVersion"] = str(self.version)
            for row in document["spec"].get("devices", ()):
                for taint in row.get("taints", []):
                    taint.setdefault("timeAdded", f"at version {self.version}")
            self.slices[write.name] = document

    def shown(self) -> dict[str, Json]:
        """Return what a scheduler sees: the newest generation, if it is complete."""
        specs = [each["spec"] for each in self.slices.values()]
        newest = max((each["pool"]["generation"] for each in specs), default=0)
        counted = [each for each in specs if each["pool"]["generation"] == newest]
        assert all(each["pool"]["resourceSliceCount"] == len(counted) for each in counted)
        return {row["name"]: row for each in counted for row in each.get("devices", ())}


SETS = st.lists(st.sets(st.tuples(st.integers(0, 150), st.sampled_from(["", "xid 79"])), max_size=140), max_size=5)


@given(SETS, st.booleans())
def test_the_slices_say_what_there_is_after_any_changes(sets: list[set[tuple[int, str]]], has_taints: bool) -> None:  # noqa: FBT001
    api = Api()
    for found in sets:
        devices = [device(number, unhealthy) for number, unhealthy in sorted(dict(found).items())]
        api.make(devices, has_taints=has_taints)
        wanted = {each.name for each in devices if has_taints or not each.unhealthy}
        assert set(api.shown()) == wanted
        before = api.writes
        api.make(devices, has_taints=has_taints)
        assert api.writes == before


def test_one_slice_is_changed_by_one_write_of_the_same_generation() -> None:
    api = Api()
    api.make([device(0), device(1)])
    api.make([device(0, "xid 79"), device(1)])
    (only,) = api.slices.values()
    assert (api.writes, only["spec"]["pool"]["generation"]) == (2, 1)
    assert api.shown()["gpu-0"]["taints"][0]["effect"] == "NoSchedule"


def test_a_taint_keeps_its_time() -> None:
    api = Api()
    api.make([device(0, "xid 79"), device(1)])
    since = api.shown()["gpu-0"]["taints"][0]["timeAdded"]
    api.make([device(0, "xid 79"), device(1), device(2)])
    assert api.shown()["gpu-0"]["taints"][0]["timeAdded"] == since


def test_more_devices_than_a_slice_may_have_are_one_pool() -> None:
    api = Api()
    api.make([device(number) for number in range(MOST_DEVICES + 1)])
    assert len(api.slices) == 2
    api.make([device(number) for number in range(MOST_DEVICES)])
    assert len(api.slices) == 1
    assert len(api.shown()) == MOST_DEVICES
    api.make([])
    assert not api.slices


def partition(number: int, gpu: int) -> DraDevice:
    of = CounterSet(f"gpu-{gpu}-counter-set", {"memory": "8Gi"})
    return device(number)._replace(draw=Draw(of, {"memory": "1Gi"}))


def test_counters_are_in_slices_of_their_own_and_written_first() -> None:
    api = Api()
    partitions = [partition(100 * gpu + number, gpu) for gpu in range(9) for number in range(10)]
    writes = plan_writes(OWNER, partitions, [])
    said = [set(each.document["spec"]) & {"devices", "sharedCounters"} for each in writes if each.document is not None]
    assert said == [{"sharedCounters"}, {"sharedCounters"}, {"devices"}, {"devices"}]
    assert all(len(each.document["spec"].get("sharedCounters", ())) <= MOST_SETS for each in writes if each.document)
    api.make(partitions)
    before = api.writes
    api.make(partitions)
    assert api.writes == before
    api.make([device(0)])
    assert len(api.slices) == 1


def test_no_partition_is_offered_where_the_api_drops_counters() -> None:
    devices = [device(0), partition(1, 1)]
    writes = plan_writes(OWNER, devices, [])
    assert writes[0].document is not None
    answer = copy.deepcopy(writes[0].document)
    assert kept_features(Features(), writes[0].document, answer).counters
    del answer["spec"]["sharedCounters"]
    kept = kept_features(Features(), writes[0].document, answer)
    assert kept == Features(counters=False)
    (again,) = plan_writes(OWNER, devices, [], kept)
    assert again.document is not None
    assert [row["name"] for row in again.document["spec"]["devices"]] == ["gpu-0"]
    assert not has_counters(again)


def test_slices_of_a_node_that_was_made_anew_are_its_own() -> None:
    api = Api()
    api.make([device(0)])
    (only,) = api.slices.values()
    (write,) = plan_writes(Owner("n1", "another"), [device(0)], [only])
    assert write.document is not None
    assert write.document["metadata"]["ownerReferences"][0]["uid"] == "another"


def test_what_others_changed_is_put_right() -> None:
    api = Api()
    api.make([device(0)])
    (only,) = api.slices.values()
    only["spec"]["devices"][0]["attributes"] = {}
    api.make([device(0)])
    assert api.shown()["gpu-0"]["attributes"] == {"uuid": {"string": "GPU-0"}}


def test_an_api_that_drops_fields_is_noticed_and_what_it_keeps_is_written() -> None:
    devices = [device(0, "xid 79"), device(1)._replace(share=Share(3, 3))]
    (write,) = plan_writes(OWNER, devices, [])
    assert write.document is not None
    answer = copy.deepcopy(write.document)
    assert kept_features(Features(), write.document, answer) == Features()
    del answer["spec"]["devices"][0]["taints"]
    del answer["spec"]["devices"][1]["allowMultipleAllocations"]
    kept = kept_features(Features(), write.document, answer)
    assert kept == Features(taints=False, shares=False)
    (again,) = plan_writes(OWNER, devices, [], kept)
    assert again.document is not None
    assert again.document["spec"]["devices"] == [{"name": "gpu-1", "attributes": {"uuid": {"string": "GPU-1"}}}]
    assert kept_features(kept, again.document, again.document) == kept
