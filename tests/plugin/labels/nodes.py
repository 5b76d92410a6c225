"""Inventories and host facts for tests of labels, and what Kubernetes takes for a label."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferRules
from plugin.driver.snapshot import GpuFacts, MigFacts, MigSize, Snapshot
from plugin.driver.topology.facts import GpuLinks, LinkFacts
from plugin.publication.labels.host import HostFacts
from plugin.publication.labels.node_labels import make_labels
from tests.plugin.fakes import VERSION, DictTree, gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.devices.sharing import ShareRule

# The rules of Kubernetes (apimachinery's validation): names after the prefix, and values.
NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
MAX_LENGTH = 63

HOST = HostFacts("DGX A100", (0x0302, 0x0302), (False, False))
SIZE = MigSize(9856, 28, 2, 1, 3, 4, 5, 6, 7)
CLIQUE = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.3"


def is_label(name: str, value: str) -> bool:
    """Whether Kubernetes takes it."""
    prefix, _, rest = name.partition("/")
    fits = len(rest) <= MAX_LENGTH and len(value) <= MAX_LENGTH
    return prefix in {"nvidia.com", "grapnel.dev"} and fits and bool(NAME.fullmatch(rest) and VALUE.fullmatch(value))


def a100(index: int, model: str = "NVIDIA A100-SXM4-80GB") -> GpuFacts:
    return replace(gpu(index), model=model, compute_capability="8.0", is_cut=False)


def cut(index: int, *profiles: str, size: MigSize | None = SIZE) -> GpuFacts:
    """Return a GPU in MIG mode."""
    migs = tuple(MigFacts(f"MIG-{index}-{at}", at, at, 0, profile, size) for at, profile in enumerate(profiles))
    return replace(a100(index), mig=migs, is_cut=True)


def inventory_of(
    gpus: Sequence[GpuFacts],
    *,
    driver: str = VERSION,
    cuda: str = "12.4",
    fabrics: Sequence[str | None] = (),
) -> Inventory:
    """Return the inventory of these GPUs; `fabrics` in their order."""
    links = LinkFacts(tuple(GpuLinks(one.uuid, (), fabric) for one, fabric in zip(gpus, fabrics, strict=False)))
    return next_inventory(Inventory(), Snapshot(driver, tuple(gpus), (), cuda, links), DictTree())


PAIR = (a100(0), a100(1))


def labels_of(
    gpus: Sequence[GpuFacts] = PAIR,
    host: HostFacts = HOST,
    *,
    strategy: str = "none",
    shares: tuple[ShareRule, ...] = (),
    fabrics: Sequence[str | None] = (),
) -> dict[str, str]:
    """Return the labels without their prefix."""
    rules = OfferRules((NamePattern("*", "nvidia.com/gpu"),), strategy, shares=shares)
    made = make_labels(inventory_of(gpus, fabrics=fabrics), host, rules)
    return {name.removeprefix("nvidia.com/"): value for name, value in made.items()}
