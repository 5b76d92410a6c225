"""The messages are the contract's: samples in, schema out."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from google.protobuf.json_format import MessageToDict, Parse

from lab.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from plugin.devices.allocation.answer import AnswerForm, ContainerAnswer, DeviceList, Imex
from plugin.devices.allocation.table import allocate
from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferRules, plan_offers
from plugin.driver.snapshot import Snapshot
from plugin.kubelet.device_plugin.messages import container_response, device_list
from plugin.kubelet.rpc.codec import encode
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus, whole_table

CONTRACT = Path(__file__).parents[4] / "docs/contracts/allocation"
CHANNEL = Imex((0,))
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())


def answer(indices: list[int], missing: set[str]) -> api_pb2.ContainerAllocateResponse:
    inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(4)), DictTree(missing))
    return as_read(allocate(whole_table(inventory), [gpu(index).uuid for index in indices]))


def as_read(given: ContainerAnswer) -> api_pb2.ContainerAllocateResponse:
    """Return what a kubelet reads of an answer."""
    return api_pb2.ContainerAllocateResponse.FromString(encode(container_response(given)))


@pytest.mark.parametrize(
    ("sample", "indices", "missing"),
    [
        pytest.param("one-gpu", [2], set(), id="one gpu"),
        pytest.param("two-gpus", [3, 0], set(), id="two gpus"),
        pytest.param("without-uvm-tools", [1], {"nvidia-uvm-tools"}, id="a node that does not exist"),
    ],
)
def test_good_samples_are_what_the_daemon_answers(sample: str, indices: list[int], missing: set[str]) -> None:
    text = (CONTRACT / f"good/{sample}.json").read_text()
    jsonschema.validate(json.loads(text), SCHEMA)
    assert answer(indices, missing) == Parse(text, api_pb2.ContainerAllocateResponse())


@pytest.mark.parametrize(
    ("sample", "form"),
    [
        pytest.param("index", AnswerForm(by_index=True), id="indices"),
        pytest.param("volume-mounts", AnswerForm((DeviceList.VOLUME_MOUNTS,)), id="mounts"),
        pytest.param("cdi-cri", AnswerForm((DeviceList.CDI_CRI,), has_nodes=False), id="cdi"),
        pytest.param("cdi-annotations", AnswerForm((DeviceList.CDI_ANNOTATIONS,), has_nodes=False), id="annotation"),
        pytest.param("without-nodes", AnswerForm(has_nodes=False, variables=("NVIDIA_GDS",)), id="no nodes, one more"),
        pytest.param("imex-envvar", AnswerForm(imex=CHANNEL), id="an IMEX channel"),
        pytest.param(
            "imex-volume-mounts", AnswerForm((DeviceList.VOLUME_MOUNTS,), imex=CHANNEL), id="an IMEX channel by a mount"
        ),
        pytest.param(
            "imex-cdi-cri",
            AnswerForm((DeviceList.CDI_CRI,), has_nodes=False, imex=CHANNEL),
            id="an IMEX channel beside CDI names",
        ),
        pytest.param(
            "imex-cdi-annotations",
            AnswerForm((DeviceList.CDI_ANNOTATIONS,), has_nodes=False, imex=CHANNEL),
            id="an IMEX channel beside a CDI annotation",
        ),
    ],
)
def test_other_strategies_are_answered_as_their_samples_say(sample: str, form: AnswerForm) -> None:
    inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(4)), DictTree())
    response = as_read(allocate(whole_table(inventory, form), [gpu(3).uuid, gpu(0).uuid]))
    text = (CONTRACT / f"strategies/{sample}.json").read_text()
    assert response == Parse(text, api_pb2.ContainerAllocateResponse())


def test_every_answer_fits_the_schema() -> None:
    shown = MessageToDict(answer([0, 1, 2, 3], set()), preserving_proto_field_name=True)
    jsonschema.validate(shown, SCHEMA)


@pytest.mark.parametrize("path", sorted(CONTRACT.glob("bad/*.json")), ids=lambda path: path.stem)
def test_bad_samples_do_not_fit_the_schema(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)


def test_the_device_list_names_health_and_numa_node() -> None:
    before = next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree(numa={gpu(1).pci_address: 1}))
    inventory = next_inventory(before, Snapshot(VERSION, (gpu(1),)), DictTree(numa={gpu(1).pci_address: 1}))
    offers = (
        plan_offers(inventory, OfferRules((NamePattern("*", "nvidia.com/gpu"),))).resources["nvidia.com/gpu"].offers
    )
    shown = api_pb2.ListAndWatchResponse.FromString(encode(device_list(offers)))
    assert MessageToDict(shown) == {
        "devices": [
            {"ID": gpu(0).uuid, "health": "Unhealthy"},
            {"ID": gpu(1).uuid, "health": "Healthy", "topology": {"nodes": [{"ID": "1"}]}},
        ]
    }
