"""Reads what the node daemon learned from NVML, from its file (contract ``docs/contracts/nvml-facts``) and merged.

The hook never asks NVML itself. The file is believed only when it is root's alone, and of it only what is said of this
driver version and of GPUs that are here, so that one of yesterday does no harm.
"""

from __future__ import annotations

from runtime_hook.base.document import Document
from runtime_hook.base.errors import InventoryError
from runtime_hook.base.jsonfast import loads
from runtime_hook.base.reading import read_trusted
from runtime_hook.base.values import value
from runtime_hook.host.inventory import Gpu, Inventory, MigDevice

FACTS_NAME = "nvml.json"
FACTS_SCHEMA = "grapnel.dev/nvml-facts/v1alpha1"
_LIMIT_BYTES = 1 << 20


@value
class MigFacts:
    """A MIG device as NVML numbers it."""

    uuid: str
    index: int
    gpu_instance: int
    compute_instance: int


@value
class GpuFacts:
    """One GPU; "" for what NVML did not say."""

    uuid: str
    model: str
    brand: str
    compute_capability: str
    mig: tuple[MigFacts, ...]


@value
class NvmlFacts:
    """What NVML said of one driver."""

    driver_version: str
    cuda_version: str
    gpus: tuple[GpuFacts, ...]


def read_facts(path: str) -> NvmlFacts | None:
    """Read the daemon's file; None where there is none that can be believed."""
    try:
        return parse_facts(loads(read_trusted(path, _LIMIT_BYTES, InventoryError)), path)
    except (FileNotFoundError, ValueError, InventoryError):
        return None


def parse_facts(content: object, where: str) -> NvmlFacts:
    """Turn parsed JSON into facts; unknown keys are left to later releases."""
    document = Document(content, where, InventoryError)
    if document.text("schema") != FACTS_SCHEMA:
        raise InventoryError(f"{where}: unknown schema {document.text('schema')}", f"known is {FACTS_SCHEMA}")
    return NvmlFacts(
        driver_version=document.text("driver_version"),
        cuda_version=document.text("cuda_version", ""),
        gpus=tuple(_gpu(entry) for entry in document.children("gpus")),
    )


def _gpu(entry: Document) -> GpuFacts:
    return GpuFacts(
        uuid=entry.text("uuid"),
        model=entry.text("model", ""),
        brand=entry.text("brand", ""),
        compute_capability=entry.text("compute_capability", ""),
        mig=tuple(
            MigFacts(
                uuid=mig.text("uuid"),
                index=mig.number("index"),
                gpu_instance=mig.number("gpu_instance"),
                compute_instance=mig.number("compute_instance"),
            )
            for mig in entry.children("mig")
        ),
    )


def merge_facts(inventory: Inventory, facts: NvmlFacts | None) -> Inventory:
    """Return the inventory with what NVML knows better; unchanged when the facts are of another driver."""
    if facts is None or facts.driver_version != inventory.driver_version:
        return inventory
    by_uuid = {gpu.uuid: gpu for gpu in facts.gpus}
    changed = {
        "cuda_version": facts.cuda_version or inventory.cuda_version,
        "gpus": tuple(_better_gpu(gpu, by_uuid.get(gpu.uuid)) for gpu in inventory.gpus),
        "mig": tuple(
            device
            for gpu in inventory.gpus
            for device in _better_mig([mig for mig in inventory.mig if mig.gpu_uuid == gpu.uuid], by_uuid.get(gpu.uuid))
        ),
    }
    return Inventory(**{**vars(inventory), **changed})


def _better_gpu(gpu: Gpu, facts: GpuFacts | None) -> Gpu:
    if facts is None:
        return gpu
    names = ("model", "brand", "compute_capability")
    return Gpu(**{**vars(gpu), **{name: vars(facts)[name] for name in names if vars(facts)[name]}})


def _better_mig(devices: list[MigDevice], facts: GpuFacts | None) -> list[MigDevice]:
    """Return a GPU's MIG devices with UUIDs, if NVML knew this very layout."""
    known = {(mig.gpu_instance, mig.compute_instance): mig for mig in facts.mig} if facts else {}
    if {(device.gpu_instance, device.compute_instance) for device in devices} != set(known):
        return devices
    found = []
    for device in devices:
        mig = known[device.gpu_instance, device.compute_instance]
        found.append(MigDevice(**{**vars(device), "uuid": mig.uuid, "index": mig.index}))
    return found
