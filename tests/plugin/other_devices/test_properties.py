"""What holds for any machine and any files: every id is one unit's, and no device is given out twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.sysfs import AMD, INTEL, Tree, fpga, gpu, rdma_nic
from plugin.devices.allocation.preference.choice import prefer
from plugin.devices.allocation.table import allocate
from plugin.devices.other.parse import parse_class
from plugin.devices.other.plan import plan_others
from plugin.devices.other.sysfs import HostSysfs

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.devices.other.device_class import DeviceClass
    from plugin.devices.other.offered import OtherPlan

pytestmark = pytest.mark.slow

_FOLDERS = ("bus/pci/devices", "class/infiniband", "class/drm", "class/net", "class/infiniband_mad")
_UNITS = (*("device",) * 3, *({"count": n} for n in (1, 3)), *({"sharesPerDevice": n} for n in (1, 2, 10)))
_DOCUMENTS = st.fixed_dictionaries(
    {
        "resource": st.sampled_from(["example.com/a", "example.com/b", "rdma/a", "example.com/card-{driver}"]),
        "unit": st.sampled_from(_UNITS),
        "match": st.fixed_dictionaries(
            {"folder": st.sampled_from(_FOLDERS)},
            optional={"vendor": st.lists(st.sampled_from(["15b3", "8086", "1002", "10ee"]), min_size=1, max_size=2)},
        ),
    }
)
_NAMES = st.lists(st.sampled_from(["a", "b", "c", "a-b", "0"]), unique=True, min_size=1, max_size=4)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> HostSysfs:
    tree = Tree(tmp_path_factory.mktemp("machine"))
    tree.add(*(rdma_nic(f"0000:{0x10 + n:02x}:00.0", n, numa_node=n % 2) for n in range(3)))
    tree.add(*(gpu(f"0000:{0x20 + n:02x}:00.0", (AMD, INTEL)[n % 2], "drm", n) for n in range(4)))
    tree.add(fpga("0000:af:00.1", 200))
    return HostSysfs(tree.sys_root, tree.dev_root)


def _classes(names: list[str], documents: list[dict[str, object]]) -> list[DeviceClass]:
    classes = []
    for name, document in zip(names, documents, strict=False):
        if isinstance(document["unit"], dict) and "count" in document["unit"] and "{" in str(document["resource"]):
            continue
        content = {
            "schema": "grapnel.dev/device-class/v1alpha1",
            "variables": {"driver": {"content": "device"}},
            **document,
        }
        classes.append(parse_class(json.dumps(content), name, name))
    return classes


def _ids(plan: OtherPlan) -> list[str]:
    return [offer.device_id for resource in plan.resources.values() for offer in resource.offers]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=_NAMES, documents=st.lists(_DOCUMENTS, min_size=1, max_size=4))
def test_an_id_is_one_units_and_a_device_one_classes(
    host: HostSysfs, names: list[str], documents: list[dict[str, object]]
) -> None:
    classes = _classes(names, documents)
    plan = plan_others(classes, host)
    ids = _ids(plan)
    assert len(ids) == len(set(ids))
    assert all(len(one) <= 63 for one in ids)
    devices: dict[str, str] = {}
    for resource in plan.resources.values():
        assert [offer.device_id for offer in resource.offers] == list(resource.table.entries)
        for entry in resource.table.entries.values():
            assert devices.setdefault(entry.device.device_id, resource.class_name) == resource.class_name
    assert plan == plan_others(classes, host)  # the same machine is the same offer


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=_NAMES, documents=st.lists(_DOCUMENTS, min_size=1, max_size=4), data=st.data())
def test_whatever_is_preferred_and_allocated_is_given_once(
    host: HostSysfs, names: list[str], documents: list[dict[str, object]], data: st.DataObject
) -> None:
    plan = plan_others(_classes(names, documents), host)
    for resource in plan.resources.values():
        free = [offer.device_id for offer in resource.offers]
        held: set[str] = set()
        while free:
            size = data.draw(st.integers(1, len(free)))
            near = frozenset(data.draw(st.sets(st.sampled_from(free))))
            chosen = prefer(resource.table, free, (), size, near=near).chosen
            assert len(set(chosen)) == size
            assert held.isdisjoint(chosen)
            assert sorted(allocate(resource.table, chosen).device_ids) == sorted(chosen)
            held.update(chosen)
            free = [one for one in free if one not in held]


_SEGMENTS = st.text(st.characters(codec="ascii"), max_size=12)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.one_of(_SEGMENTS, st.sampled_from(["..", "../../mem", "/dev/mem", "nvidia0", "a/../../b", "."])))
def test_whatever_a_device_says_no_node_lies_outside(tmp_path: Path, said: str) -> None:
    tree = Tree(tmp_path)
    if not tree.folder("0000:3b:00.0").exists():
        tree.add(rdma_nic("0000:3b:00.0", 0))
    tree.write("0000:3b:00.0", "said", said)
    document = {
        "schema": "grapnel.dev/device-class/v1alpha1",
        "resource": "example.com/card",
        "match": {"folder": "class/infiniband"},
        "variables": {"said": {"content": "said"}},
        "nodes": [{"path": "infiniband/{said}", "required": False}, {"path": "{said}", "required": False}],
        "mounts": [{"hostPath": "/run/{said}"}],
        "environment": {"SAID": "{said}"},
    }
    plan = plan_others([parse_class(json.dumps(document), "card", "card")], HostSysfs(tree.sys_root, tree.dev_root))
    for entry in plan.resources["example.com/card"].table.entries.values():
        nodes = [node.container_path for node in entry.device.nodes]
        assert not any(".." in path.split("/") or path.startswith("/dev/nvidia") for path in nodes)
        assert all(mount.host_path.startswith("/run/") for mount in entry.device.mounts)
        assert all(mount.host_path.count("/") == 2 for mount in entry.device.mounts)
