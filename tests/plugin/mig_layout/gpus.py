"""GPUs as NVIDIA's MIG user guide describes them, for the tests of layouts."""

from __future__ import annotations

from typing import Any

from plugin.changes.mig_layout.model import GpuLayout, Instance
from plugin.driver.mig_instances import InstanceProfile

_EACH = tuple((start, 1) for start in range(7))


def profiles(gib: int) -> tuple[InstanceProfile, ...]:
    """Return the profiles of an A100 or H100 with so much memory (`nvidia-smi mig -lgipp`)."""
    one = gib // 8
    return (
        InstanceProfile(19, f"1g.{one}gb", 1, 7, _EACH),
        InstanceProfile(20, f"1g.{one}gb+me", 1, 1, _EACH),
        InstanceProfile(15, f"1g.{2 * one}gb", 1, 4, ((0, 2), (2, 2), (4, 2), (6, 2))),
        InstanceProfile(14, f"2g.{2 * one}gb", 2, 3, ((0, 2), (2, 2), (4, 2))),
        InstanceProfile(9, f"3g.{4 * one}gb", 3, 2, ((0, 4), (4, 4))),
        InstanceProfile(5, f"4g.{4 * one}gb", 4, 1, ((0, 4),)),
        InstanceProfile(0, f"7g.{8 * one}gb", 7, 1, ((0, 8),)),
    )


H100 = profiles(80)


def gpu(*instances: Instance, index: int = 0, **changes: Any) -> GpuLayout:
    """Return an H100 in MIG mode."""
    values = {
        "uuid": f"GPU-{index}",
        "model": "NVIDIA H100 80GB HBM3",
        "pci_device_id": 0x233010DE,
        "pci_subsystem_id": 0x16C110DE,
        "is_cut": True,
        "is_pending": True,
        "profiles": H100,
        "instances": instances,
        **changes,
    }
    return GpuLayout(index, **values)


def instance(profile: str, start: int, *compute: int, number: int = 1, holders: tuple[str, ...] = ()) -> Instance:
    """Return an instance that is there, with one compute instance that fills it unless others are named."""
    size = next(each.places[0][1] for each in H100 if each.name == profile)
    whole = int(profile.partition("g.")[0])
    return Instance(start, size, profile, compute or (whole,), number, holders)
