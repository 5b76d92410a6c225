"""A node's labels from its inventory: what NVIDIA's GPU feature discovery says, under its names. Pure.

From its docs/gpu-feature-discovery and internal/lm (0.19). What that has no label for is under a domain of ours. Labels
say what hardware and driver there are, so health and releases do not change them: a GPU that fell off the bus still
counts, as in the node's capacity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.mig import SINGLE, why_invalid
from plugin.devices.naming import NamePattern
from plugin.devices.resources import UNDIVIDED, Division, OfferRules, find_divisions
from plugin.devices.sharing import Strategy
from plugin.driver.topology.facts import NO_CLUSTER
from plugin.kubelet.list_size import plan_that_fits
from plugin.publication.labels.gpus import GPU, fit, label_gpus, label_mig, products
from plugin.publication.labels.vgpu import HostDriver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from plugin.devices.inventory import Inventory
    from plugin.driver.snapshot import GpuFacts
    from plugin.driver.topology.facts import GpuLinks
    from plugin.publication.labels.host import HostFacts

UNKNOWN = "unknown"
KERNEL_MODULE, ECC = OWN = ("grapnel.dev/driver.kernel-module", "grapnel.dev/gpu.ecc")
NO_RULES = OfferRules((NamePattern("*", GPU),))
_NOT_OFFERED = Division(units=0)
_MODES = {0x0300: "graphics", 0x0302: "compute"}
_MIN_PARTS, _MAX_PARTS = 2, 3


def make_labels(
    inventory: Inventory,
    host: HostFacts,
    rules: OfferRules = NO_RULES,
    *,
    refused: Collection[str] = (),
    timestamp: int | None = None,
) -> dict[str, str]:
    """Return label → value in the order of names; nothing for a node without a GPU.

    `rules` say how devices are offered: labels tell how they are shared. `refused` are GPUs that cannot be shared
    through MPS. `timestamp` is when they are made, in seconds since 1970; None leaves that label out.
    """
    gpus = [device.gpu for device in inventory.devices]
    if not gpus:
        return {}
    divisions = _divisions(inventory, rules, refused)
    labels = {
        **_driver(inventory.driver_version),
        **_cuda(inventory.cuda_version),
        **label_gpus(gpus, divisions),
        **label_mig(gpus, rules.mig_strategy, divisions),
        **_vgpu(host),
        **_own(gpus, host),
        **_clique(inventory.topology.facts.gpus),
        f"{GPU}.machine": fit(host.machine) or UNKNOWN,
        f"{GPU}.mode": _mode(host.classes),
        "nvidia.com/mig.capable": _word(is_so=any(gpu.is_cut is not None for gpu in gpus)),
        "nvidia.com/mps.capable": _word(is_so=any(each.strategy is Strategy.MPS for each in divisions.values())),
    }
    if timestamp is not None:
        labels["nvidia.com/gfd.timestamp"] = str(timestamp)
    return dict(sorted(labels.items()))


def label_notes(
    inventory: Inventory, rules: OfferRules = NO_RULES, *, refused: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield what people should know of the labels and cannot see in them."""
    gpus = [device.gpu for device in inventory.devices]
    models = products(gpus)
    if len(models) > 1:
        yield f"labels speak of {models[0]} alone: there are {', '.join(models[1:])}, too"
    why = why_invalid(gpus) if rules.mig_strategy == SINGLE else ""
    if why:
        yield f"gpu.count is 0: migStrategy is single, and {why}"
    for uuid, reason in (refused or {}).items():
        yield f"labels say nothing of MPS: {uuid} {reason}"
    divisions = _divisions(inventory, rules, refused or {})
    ways = {divisions.get(gpu.uuid, UNDIVIDED) for gpu in gpus if gpu.model == models[0] and not gpu.is_cut}
    if len(ways) > 1:
        yield "gpu.replicas and gpu.sharing-strategy are those of the first GPU: others are shared in another way"


def _divisions(inventory: Inventory, rules: OfferRules, refused: Collection[str]) -> dict[str, Division]:
    """Return how devices are shared, and which are not offered at all.

    A GPU in MIG mode is not shared, though `migStrategy: none` offers shares of it.
    """
    cut = {device.gpu.uuid for device in inventory.devices if device.gpu.is_cut}
    plan = plan_that_fits(inventory, rules)
    offered = {unit.source_id for each in plan.resources.values() for unit in each.units}.difference(refused)
    known = {each for gpu in inventory.devices for each in (gpu.gpu.uuid, *(mig.uuid for mig in gpu.gpu.mig))}
    found = {**find_divisions(plan), **dict.fromkeys(known - offered, _NOT_OFFERED)}
    return {device: division for device, division in found.items() if device not in cut}


def _word(*, is_so: bool) -> str:
    return "true" if is_so else "false"


def _driver(version: str) -> dict[str, str]:
    """Return the driver's version under new and old names; one that is not X.Y or X.Y.Z only as a whole."""
    labels = {"nvidia.com/cuda.driver-version.full": fit(version)}
    parts = version.split(".")
    if not _MIN_PARTS <= len(parts) <= _MAX_PARTS:
        return labels
    major, minor, revision = map(fit, (*parts, "")[:_MAX_PARTS])
    for prefix, last in (("cuda.driver-version", "revision"), ("cuda.driver", "rev")):
        labels |= {
            f"nvidia.com/{prefix}.major": major,
            f"nvidia.com/{prefix}.minor": minor,
            f"nvidia.com/{prefix}.{last}": revision,
        }
    return labels


def _cuda(version: str) -> dict[str, str]:
    major, _, minor = version.partition(".")
    if not (major and minor):
        return {}
    labels = {"nvidia.com/cuda.runtime-version.full": fit(version)}
    for prefix in ("cuda.runtime-version", "cuda.runtime"):
        labels |= {f"nvidia.com/{prefix}.major": fit(major), f"nvidia.com/{prefix}.minor": fit(minor)}
    return labels


def _mode(classes: tuple[int | None, ...]) -> str:
    """Return the mode that all GPUs are in."""
    one = set(classes)
    return _MODES.get(one.pop() or 0, UNKNOWN) if len(one) == 1 else UNKNOWN


def _vgpu(host: HostFacts) -> dict[str, str]:
    """Return nothing where not a single vGPU was seen and some GPU did not say: it could be one."""
    drivers = [driver for driver in host.vgpus if isinstance(driver, HostDriver)]
    if not drivers:
        return {} if None in host.vgpus else {"nvidia.com/vgpu.present": _word(is_so=False)}
    labels = {"nvidia.com/vgpu.present": _word(is_so=True)}
    for driver in drivers:
        if driver.version:
            labels["nvidia.com/vgpu.host-driver-version"] = fit(driver.version)
            labels["nvidia.com/vgpu.host-driver-branch"] = fit(driver.branch)
    return labels


def _own(gpus: Sequence[GpuFacts], host: HostFacts) -> dict[str, str]:
    """Return what NVIDIA has no label for. A GPU that has no ECC, or does not say, has no part in its label."""
    modes = {ecc_word(gpu) for gpu in gpus if gpu.model == products(gpus)[0]} - {""}
    labels = {KERNEL_MODULE: host.kernel_module} if host.kernel_module else {}
    return labels | ({ECC: modes.pop() if len(modes) == 1 else "mixed"} if modes else {})


def ecc_word(gpu: GpuFacts) -> str:
    """Return whether a GPU's ECC is on, as a label says it; "" where it has none or does not say."""
    return "" if gpu.has_ecc is None else "enabled" if gpu.has_ecc else "disabled"


def _clique(gpus: Sequence[GpuLinks]) -> dict[str, str]:
    """Return the NVLink fabric's clique where all GPUs that are in a fabric are in the same one.

    An NVSwitch machine by itself has no cluster, and says so by a UUID of zeros.
    """
    found = {gpu.fabric for gpu in gpus if gpu.fabric and not gpu.fabric.startswith(NO_CLUSTER)}
    return {f"{GPU}.clique": fit(found.pop())} if len(found) == 1 else {}
