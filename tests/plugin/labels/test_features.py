"""What rules of Node Feature Discovery can ask for: of the driver, and of every GPU of a mixed node."""

from __future__ import annotations

from dataclasses import replace

from plugin.publication.labels.features import make_features
from tests.plugin.labels.nodes import HOST, a100, cut, inventory_of

OTHER = replace(
    a100(1), model="Tesla T4", memory_bytes=15 * 2**30, compute_capability="7.5", is_cut=None, has_ecc=False
)


def test_the_driver_is_one_set_of_attributes() -> None:
    made = make_features(inventory_of([a100(0)]), replace(HOST, kernel_module="open"))
    assert made.attributes == {
        "grapnel.driver": {
            "version": "550.163.01",
            "major": "550",
            "cuda.major": "12",
            "cuda.minor": "4",
            "kernel-module": "open",
        }
    }


def test_each_gpu_is_an_instance_of_its_own() -> None:
    gpus = [replace(a100(0), has_ecc=True), OTHER, cut(2, "1g.10gb")]
    one, other, third = make_features(inventory_of(gpus), HOST).instances["grapnel.gpu"]
    assert one == {
        "uuid": a100(0).uuid,
        "product": "NVIDIA A100-SXM4-80GB",
        "memory": "81920",
        "family": "ampere",
        "compute.major": "8",
        "compute.minor": "0",
        "ecc": "enabled",
        "mig": "disabled",
    }
    assert (other["memory"], other["ecc"], other["family"]) == ("15360", "disabled", "turing")
    assert "mig" not in other
    assert third["mig"] == "enabled"


def test_what_is_not_known_is_left_out() -> None:
    gpu = replace(a100(0), memory_bytes=None, compute_capability="", is_cut=None)
    made = make_features(inventory_of([gpu], driver="", cuda=""), HOST)
    assert made.attributes == {"grapnel.driver": {}}
    assert made.instances == {"grapnel.gpu": ({"uuid": gpu.uuid, "product": gpu.model},)}
