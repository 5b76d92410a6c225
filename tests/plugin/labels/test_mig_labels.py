"""Labels of GPUs that are cut into MIG devices, by strategy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferRules
from plugin.publication.labels.node_labels import label_notes
from tests.plugin.labels.nodes import SIZE, a100, cut, inventory_of, labels_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.driver.snapshot import GpuFacts


ATTRIBUTES = {
    "memory": "9856",
    "multiprocessors": "28",
    "slices.gi": "2",
    "slices.ci": "1",
    "engines.copy": "3",
    "engines.decoder": "4",
    "engines.encoder": "5",
    "engines.jpeg": "6",
    "engines.ofa": "7",
}
INVALID = {
    "mig.strategy": "single",
    "gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-INVALID",
    "gpu.count": "0",
    "gpu.replicas": "0",
    "gpu.sharing-strategy": "",
    "gpu.memory": "0",
}


def test_without_a_strategy_gpus_in_mig_mode_are_whole_ones_that_are_not_shared() -> None:
    found = labels_of((cut(0, "1g.10gb"), cut(1)))
    assert found["gpu.count"] == "2"
    assert found["gpu.replicas"] == "0"
    assert "mig.strategy" not in found
    assert labels_of((cut(0, "1g.10gb"), a100(1)))["gpu.replicas"] == "1"


def test_single_speaks_of_mig_devices_as_gpus() -> None:
    gpus = (cut(0, "2g.20gb", "2g.20gb"), cut(1, "2g.20gb"))
    expected = {
        "mig.strategy": "single",
        "gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-2g.20gb",
        "gpu.count": "3",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.family": "ampere",
        **{f"gpu.{name}": value for name, value in ATTRIBUTES.items()},
    }
    found = labels_of(gpus, strategy="single")
    assert {name: found.get(name) for name in expected} == expected
    assert list(label_notes(inventory_of(gpus), OfferRules((NamePattern("*", "nvidia.com/gpu"),), "single"))) == []


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        pytest.param((cut(0, "1g.10gb"), cut(1)), "no MIG device", id="a GPU in MIG mode is empty"),
        pytest.param((cut(0, "1g.10gb"), a100(1)), "others are not", id="a GPU is not in MIG mode"),
        pytest.param((cut(0, "1g.10gb", "2g.20gb"),), "one profile", id="two profiles"),
        pytest.param((cut(0, "1g.10gb", ""),), "one profile", id="a profile that is not known"),
        pytest.param((cut(0, "", ""),), "one profile", id="no profile that is known"),
    ],
)
def test_single_over_another_layout_is_invalid(gpus: Sequence[GpuFacts], why: str) -> None:
    found = labels_of(gpus, strategy="single")
    assert {name: found.get(name) for name in INVALID} == INVALID
    assert found["gpu.family"] == "ampere"
    assert [
        why in note
        for note in label_notes(inventory_of(gpus), OfferRules((NamePattern("*", "nvidia.com/gpu"),), "single"))
    ] == [True]


def test_single_without_mig_is_as_without_a_strategy() -> None:
    assert labels_of(strategy="single") == {**labels_of(), "mig.strategy": "single"}


def test_mixed_has_labels_for_each_profile() -> None:
    gpus = (cut(0, "1g.10gb+me", "2g.20gb"), cut(1, "2g.20gb"), a100(2))
    found = labels_of(gpus, strategy="mixed")
    profiles = {"mig-1g.10gb.me": ("1", "MIG-1g.10gb.me"), "mig-2g.20gb": ("2", "MIG-2g.20gb")}
    expected = {
        "mig.strategy": "mixed",
        "gpu.count": "3",
        "gpu.product": "NVIDIA-A100-SXM4-80GB",
    }
    for profile, (count, suffix) in profiles.items():
        expected |= {
            f"{profile}.count": count,
            f"{profile}.product": f"NVIDIA-A100-SXM4-80GB-{suffix}",
            f"{profile}.replicas": "1",
            f"{profile}.sharing-strategy": "none",
            **{f"{profile}.{name}": value for name, value in ATTRIBUTES.items()},
        }
    assert {name: found.get(name) for name in expected} == expected
    assert set(found) - set(labels_of(gpus)) == {name for name in expected if name.startswith("mig")}


def test_a_mig_device_whose_size_is_not_known_is_counted_all_the_same() -> None:
    found = labels_of([cut(0, "1g.10gb", size=None)], strategy="mixed")
    assert found["mig-1g.10gb.count"] == "1"
    assert "mig-1g.10gb.memory" not in found


def test_a_long_product_gives_way_to_what_is_said_of_it() -> None:
    found = labels_of([replace(cut(0), model="NVIDIA " + "x" * 80)], strategy="single")
    assert found["gpu.product"] == ("NVIDIA-" + "x" * 80)[: 63 - len("-MIG-INVALID")] + "-MIG-INVALID"


def test_the_size_of_the_tables_has_nine_numbers() -> None:
    assert [str(number) for number in vars(SIZE).values()] == list(ATTRIBUTES.values())
