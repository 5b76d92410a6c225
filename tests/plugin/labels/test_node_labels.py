"""Every label that NVIDIA's feature discovery sets, with its value here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.devices.inventory import Inventory, next_inventory, without_driver
from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferRules
from plugin.driver.snapshot import GpuFacts, LostGpu, MigFacts, MigSize, Snapshot
from plugin.publication.labels.gpus import family
from plugin.publication.labels.host import HostFacts
from plugin.publication.labels.node_labels import label_notes, make_labels
from plugin.publication.labels.vgpu import HostDriver
from tests.plugin.fakes import VERSION, DictTree
from tests.plugin.labels.nodes import CLIQUE, HOST, PAIR, a100, cut, inventory_of, is_label, labels_of

if TYPE_CHECKING:
    from collections.abc import Sequence

WHOLE = {
    "cuda.driver-version.full": "550.163.01",
    "cuda.driver-version.major": "550",
    "cuda.driver-version.minor": "163",
    "cuda.driver-version.revision": "01",
    "cuda.driver.major": "550",
    "cuda.driver.minor": "163",
    "cuda.driver.rev": "01",
    "cuda.runtime-version.full": "12.4",
    "cuda.runtime-version.major": "12",
    "cuda.runtime-version.minor": "4",
    "cuda.runtime.major": "12",
    "cuda.runtime.minor": "4",
    "gpu.clique": CLIQUE,
    "gpu.compute.major": "8",
    "gpu.compute.minor": "0",
    "gpu.count": "2",
    "gpu.family": "ampere",
    "gpu.machine": "DGX-A100",
    "gpu.memory": "81920",
    "gpu.mode": "compute",
    "gpu.product": "NVIDIA-A100-SXM4-80GB",
    "gpu.replicas": "1",
    "gpu.sharing-strategy": "none",
    "mig.capable": "true",
    "mps.capable": "false",
    "vgpu.host-driver-branch": "r535_00",
    "vgpu.host-driver-version": "535.54",
    "vgpu.present": "true",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WHOLE, "no other label"])
def test_a_label_has_the_value_that_nvidia_gives_it(name: str) -> None:
    host = replace(HOST, vgpus=(HostDriver("535.54", "r535_00"), False))
    found = labels_of(host=host, fabrics=(CLIQUE, CLIQUE))
    assert found.get(name) == WHOLE.get(name)
    assert set(found) == set(WHOLE)


@pytest.mark.parametrize(
    ("gpus", "module", "expected"),
    [
        pytest.param((True, True), "open", ("open", "enabled"), id="both on"),
        pytest.param((False, False), "proprietary", ("proprietary", "disabled"), id="both off"),
        pytest.param((True, False), "", (None, "mixed"), id="one of two"),
        pytest.param((None, True), "", (None, "enabled"), id="a GPU that does not say has no part in it"),
        pytest.param((None, None), "", (None, None), id="GPUs without ECC"),
    ],
)
def test_what_nvidia_has_no_label_for_has_one_of_ours(
    gpus: tuple[bool | None, ...], module: str, expected: tuple[str | None, str | None]
) -> None:
    seen = [replace(a100(index), has_ecc=has_ecc) for index, has_ecc in enumerate(gpus)]
    found = labels_of(seen, replace(HOST, kernel_module=module))
    assert (found.get("grapnel.dev/driver.kernel-module"), found.get("grapnel.dev/gpu.ecc")) == expected


def test_labels_are_in_the_order_of_their_names() -> None:
    made = list(
        make_labels(
            inventory_of(PAIR),
            HOST,
            OfferRules((NamePattern("*", "nvidia.com/gpu"),), "mixed"),
            timestamp=1_700_000_000,
        )
    )
    assert made == sorted(made)


@pytest.mark.parametrize(
    ("timestamp", "value"),
    [
        pytest.param(1_700_000_000, "1700000000", id="when the labels were made"),
        pytest.param(None, None, id="none where it is not wanted"),
    ],
)
def test_the_timestamp_is_optional(timestamp: int | None, value: str | None) -> None:
    made = make_labels(inventory_of(PAIR), HOST, timestamp=timestamp)
    assert made.get("nvidia.com/gfd.timestamp") == value


def test_a_node_without_a_gpu_has_no_labels() -> None:
    assert make_labels(Inventory(), HostFacts(), timestamp=1) == {}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("550.54", ("550", "54", ""), id="no revision is an empty one"),
        pytest.param("550.54.15", ("550", "54", "15"), id="three parts"),
        pytest.param("1.2.3.4", (None, None, None), id="four parts are no version that has a major"),
        pytest.param("next", (None, None, None), id="a word is none either"),
    ],
)
def test_a_driver_version_is_taken_apart(version: str, expected: tuple[str | None, ...]) -> None:
    made = make_labels(inventory_of(PAIR, driver=version), HOST)
    for prefix, last in (("cuda.driver-version", "revision"), ("cuda.driver", "rev")):
        assert tuple(made.get(f"nvidia.com/{prefix}.{part}") for part in ("major", "minor", last)) == expected
    assert made["nvidia.com/cuda.driver-version.full"] == version


def test_a_driver_that_does_not_say_its_cuda_version_has_no_label_for_it() -> None:
    made = make_labels(inventory_of(PAIR, cuda=""), HOST)
    assert not [name for name in made if "runtime" in name]


@pytest.mark.parametrize(
    ("major", "minor", "name"),
    [
        pytest.param(major, minor, name, id=f"{major}.{minor} is {name}")
        for major, minor, name in (
            (1, 3, "tesla"),
            (2, 0, "fermi"),
            (3, 7, "kepler"),
            (4, 0, "undefined"),
            (5, 2, "maxwell"),
            (6, 1, "pascal"),
            (7, 0, "volta"),
            (7, 2, "volta"),
            (7, 5, "turing"),
            (8, 0, "ampere"),
            (8, 7, "ampere"),
            (8, 9, "ada-lovelace"),
            (9, 0, "hopper"),
            (10, 3, "blackwell"),
            (11, 0, "undefined"),
            (12, 1, "blackwell"),
            (13, 0, "rubin"),
            (99, 0, "undefined"),
        )
    ],
)
def test_an_architecture_has_its_name(major: int, minor: int, name: str) -> None:
    assert family(major, minor) == name


@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param({"memory_bytes": None}, {"gpu.memory"}, id="memory"),
        pytest.param({"memory_bytes": 0}, {"gpu.memory"}, id="memory of nothing"),
        pytest.param(
            {"compute_capability": ""}, {"gpu.family", "gpu.compute.major", "gpu.compute.minor"}, id="architecture"
        ),
    ],
)
def test_what_a_gpu_does_not_say_has_no_label(change: dict[str, object], names: set[str]) -> None:
    silent = replace(a100(0), **change)  # type: ignore[arg-type] # a field of the table
    assert set(labels_of([a100(0)])) - set(labels_of([silent])) == names


@pytest.mark.parametrize(
    ("classes", "mode"),
    [
        pytest.param((0x0302, 0x0302), "compute", id="3D controllers"),
        pytest.param((0x0300, 0x0300), "graphics", id="VGA controllers"),
        pytest.param((0x0300, 0x0302), "unknown", id="some of each"),
        pytest.param((0x0302, None), "unknown", id="one that does not say"),
        pytest.param((0x0680,), "unknown", id="another class"),
        pytest.param((), "unknown", id="nothing"),
    ],
)
def test_the_mode_is_the_class_of_all_gpus(classes: tuple[int | None, ...], mode: str) -> None:
    assert labels_of(host=replace(HOST, classes=classes))["gpu.mode"] == mode


@pytest.mark.parametrize(
    ("vgpus", "expected"),
    [
        pytest.param((False, False), {"vgpu.present": "false"}, id="none"),
        pytest.param((False, None), {}, id="none that was seen, and one that does not say"),
        pytest.param((None, HostDriver()), {"vgpu.present": "true"}, id="one whose host does not say"),
    ],
)
def test_a_vgpu_is_told(vgpus: tuple[HostDriver | bool | None, ...], expected: dict[str, str]) -> None:
    found = labels_of(host=replace(HOST, vgpus=vgpus))
    assert {name: value for name, value in found.items() if name.startswith("vgpu")} == expected


@pytest.mark.parametrize(
    ("machine", "value"),
    [
        pytest.param(
            "PowerEdge XE9680 (SKU=NotProvided;ModelName=x)", "PowerEdge-XE9680-SKUNotProvidedModelNamex", id="odd"
        ),
        pytest.param("", "unknown", id="nothing"),
        pytest.param("(®)", "unknown", id="nothing that can be a value"),
        pytest.param("x" * 70, "x" * 63, id="too long"),
        pytest.param("a" * 62 + " b", "a" * 62, id="cut behind a space"),
    ],
)
def test_the_machine_is_a_value(machine: str, value: str) -> None:
    assert labels_of(host=replace(HOST, machine=machine))["gpu.machine"] == value


@pytest.mark.parametrize(
    ("fabrics", "value"),
    [
        pytest.param((CLIQUE, CLIQUE), CLIQUE, id="all in one"),
        pytest.param((CLIQUE, None), CLIQUE, id="one that is in no fabric does not count"),
        pytest.param((CLIQUE, ""), CLIQUE, id="nor one that is not ready"),
        pytest.param((CLIQUE, CLIQUE[:-1] + "4"), None, id="two cliques"),
        pytest.param(("00000000-0000-0000-0000-000000000000.0",) * 2, None, id="NVSwitches of one machine"),
        pytest.param((None, None), None, id="none"),
    ],
)
def test_the_clique_is_that_of_all_gpus(fabrics: Sequence[str | None], value: str | None) -> None:
    assert labels_of(fabrics=fabrics).get("gpu.clique") == value


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param(
            (a100(0, "NVIDIA L4"), a100(1), a100(2)), ("NVIDIA-A100-SXM4-80GB", "2"), id="the one with the most GPUs"
        ),
        pytest.param((a100(0, "NVIDIA L4"), a100(1)), ("NVIDIA-L4", "1"), id="the first one of equals"),
        pytest.param(
            (cut(0), cut(1), a100(2, "NVIDIA L4")), ("NVIDIA-L4", "1"), id="one with whole GPUs before one without"
        ),
    ],
)
def test_of_several_products_one_stands_for_the_node(gpus: Sequence[GpuFacts], expected: tuple[str, str]) -> None:
    found = labels_of(gpus)
    assert (found["gpu.product"], found["gpu.count"]) == expected
    assert [note.partition(":")[0] for note in label_notes(inventory_of(gpus))] != []


def test_one_product_is_nothing_to_note() -> None:
    assert list(label_notes(inventory_of(PAIR), OfferRules((NamePattern("*", "nvidia.com/gpu"),), "single"))) == []


def test_health_does_not_change_the_labels() -> None:
    seen = inventory_of(PAIR)
    lost = next_inventory(
        seen, Snapshot(VERSION, PAIR[:1], (LostGpu(1, PAIR[1].uuid, "gpu is lost"),), "12.4"), DictTree()
    )
    assert not all(device.is_healthy for device in lost.devices)
    assert make_labels(lost, HOST) == make_labels(seen, HOST)
    assert make_labels(without_driver(seen, "released"), HOST) == make_labels(seen, HOST)


# Whatever NVML says

texts = st.one_of(st.text(max_size=90), st.from_regex(r"[-_. a-z]{0,80}", fullmatch=True))
profiles = st.one_of(st.sampled_from(["1g.10gb", "1g.10gb+me", "1c.2g.20gb"]), st.from_regex(r"[0-9a-z.+-]{0,50}"))
sizes = st.one_of(st.none(), st.builds(MigSize, *[st.integers(0, 2**32)] * 9))
migs = st.builds(MigFacts, st.just("MIG-0"), st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), profiles, sizes)


@st.composite
def odd_gpus(draw: st.DrawFn) -> GpuFacts:
    return replace(
        a100(draw(st.integers(0, 15))),
        model=draw(texts),
        memory_bytes=draw(st.one_of(st.none(), st.integers(0, 2**64))),
        compute_capability=draw(st.one_of(st.sampled_from(["", "8.0", "9.", "٣.٤"]), texts)),
        mig=tuple(draw(st.lists(migs, max_size=7))),
        is_cut=draw(st.sampled_from([None, False, True])),
    )


hosts = st.builds(
    HostFacts,
    texts,
    st.lists(st.one_of(st.none(), st.integers(0, 0xFFFF))).map(tuple),
    st.lists(st.one_of(st.none(), st.just(False), st.builds(HostDriver, texts, texts))).map(tuple),
)


@pytest.mark.slow
@given(
    gpus=st.lists(odd_gpus(), min_size=1, max_size=8),
    host=hosts,
    versions=st.tuples(texts, texts),
    fabric=st.one_of(st.none(), texts),
    strategy=st.sampled_from(["none", "single", "mixed"]),
)
def test_whatever_nvml_says_kubernetes_takes_the_labels(
    gpus: list[GpuFacts], host: HostFacts, versions: tuple[str, str], fabric: str | None, strategy: str
) -> None:
    seen = inventory_of(gpus, driver=versions[0], cuda=versions[1], fabrics=[fabric] * len(gpus))
    made = make_labels(seen, host, OfferRules((NamePattern("*", "nvidia.com/gpu"),), strategy), timestamp=0)
    assert [(name, value) for name, value in made.items() if not is_label(name, value)] == []
    assert {"nvidia.com/gpu.count", "nvidia.com/gpu.product", "nvidia.com/gpu.machine"} <= set(made)
