"""The node daemon's facts: what is believed of them, and what they change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime_hook.base.errors import InventoryError
from runtime_hook.host.inventory import Fingerprint, Gpu, Inventory, MigDevice
from runtime_hook.host.nvmlfacts import GpuFacts, MigFacts, NvmlFacts, merge_facts, parse_facts, read_facts

CONTRACT = Path(__file__).resolve().parents[3] / "docs/contracts/nvml-facts"
GPU = Gpu(0, "GPU-a", 0, "0000:10:00.0", "/dev/nvidia0", 195, 0, "NVIDIA A100", "Nvidia", "8.0")
MIG = (MigDevice("GPU-a", 1, 0, ()), MigDevice("GPU-a", 2, 0, ()))
INVENTORY = Inventory(
    driver_version="550.1",
    control=(),
    gpus=(GPU,),
    libraries=(),
    binaries=(),
    fingerprint=Fingerprint("550.1", (), (), ()),
    mig=MIG,
    cuda_version="12.4",
)


def facts(version: str = "550.1", uuid: str = "GPU-a", mig: tuple[MigFacts, ...] = ()) -> NvmlFacts:
    return NvmlFacts(version, "12.9", (GpuFacts(uuid, "", "Tesla", "8.9", mig),))


def samples(kind: str) -> list[object]:
    paths = sorted((CONTRACT / kind).glob("*.json"))
    assert paths
    return [pytest.param(json.loads(path.read_text(encoding="utf-8")), id=path.stem) for path in paths]


@pytest.mark.parametrize("content", samples("good"))
def test_good_facts_are_read(content: object) -> None:
    assert isinstance(parse_facts(content, "nvml.json"), NvmlFacts)


@pytest.mark.parametrize("content", samples("bad"))
def test_bad_facts_are_refused_by_name(content: object) -> None:
    with pytest.raises(InventoryError, match=r"nvml\.json"):
        parse_facts(content, "nvml.json")


def test_what_nvml_says_counts_more_than_tables() -> None:
    merged = merge_facts(INVENTORY, facts())
    assert (merged.cuda_version, merged.gpus[0].brand, merged.gpus[0].compute_capability) == ("12.9", "Tesla", "8.9")
    assert merged.gpus[0].model == "NVIDIA A100"  # NVML did not say


@pytest.mark.parametrize(
    ("said", "cuda_version"),
    [
        pytest.param(facts(version="535.1"), "12.4", id="of another driver"),
        pytest.param(facts(uuid="GPU-b"), "12.9", id="of another GPU"),
        pytest.param(None, "12.4", id="nothing"),
    ],
)
def test_facts_that_are_not_of_these_gpus_change_none(said: NvmlFacts | None, cuda_version: str) -> None:
    merged = merge_facts(INVENTORY, said)
    assert (merged.gpus, merged.mig, merged.cuda_version) == (INVENTORY.gpus, INVENTORY.mig, cuda_version)


def test_mig_devices_are_named_when_nvml_knew_this_very_layout() -> None:
    both = (MigFacts("MIG-x", 1, 1, 0), MigFacts("MIG-y", 0, 2, 0))
    named = merge_facts(INVENTORY, facts(mig=both)).mig
    assert [(device.gpu_instance, device.uuid, device.index) for device in named] == [(1, "MIG-x", 1), (2, "MIG-y", 0)]
    assert merge_facts(INVENTORY, facts(mig=both[:1])).mig == MIG


@pytest.mark.parametrize(
    ("content", "mode"),
    [
        pytest.param(None, 0o644, id="missing file"),
        pytest.param("{", 0o644, id="it is no JSON"),
        pytest.param("[]", 0o644, id="it is no object"),
        pytest.param("good", 0o666, id="others could have written it"),
    ],
)
def test_a_file_that_cannot_be_believed_counts_as_missing(tmp_path: Path, content: str | None, mode: int) -> None:
    path = tmp_path / "nvml.json"
    if content is not None:
        good = (CONTRACT / "good/one-gpu.json").read_text(encoding="utf-8")
        path.write_text(good if content == "good" else content)
        path.chmod(mode)
    assert read_facts(str(path)) is None
