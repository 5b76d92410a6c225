"""Tells which drivers support a GPU, by its PCI id, from the dated list ``data/supported-gpus.json``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources

from provision.planning.driver.gpu_list import Group, parse_list


@dataclass(frozen=True)
class GpuSupport:
    """What a GPU can run. One that is not listed is taken for a new one: the open module, and no limit of branches.

    ``oldest_branch`` and ``newest_branch`` are None where no limit is known.
    """

    name: str
    oldest_branch: int | None
    newest_branch: int | None
    open: bool
    proprietary: bool
    known: bool


def support(device_id: str, subsystem: str = "") -> GpuSupport:
    """Return what a GPU can run; ids in lower-case hexadecimal, ``subsystem`` as ``vendor:device`` or empty.

    A subsystem has its own name and what its device supports. That an unknown GPU gets the open module is the rule of
    nvidia-driver-assistant (``get_nvidia_devices``): GPUs that are newer than a list support it.
    """
    device = device_id.lower()
    found = _listed().get(device)
    if found is None:
        return GpuSupport(f"GPU {device}", None, None, open=True, proprietary=False, known=False)
    group, default = found
    return GpuSupport(
        name=group.gpus.get(f"{device}:{subsystem.lower()}", default),
        oldest_branch=group.oldest,
        newest_branch=group.newest,
        open=group.open,
        proprietary=group.proprietary,
        known=True,
    )


def list_date() -> str:
    """Return the day of the list, as ``YYYY-MM-DD``."""
    return parse_list(_text()).date


@functools.cache
def _listed() -> dict[str, tuple[Group, str]]:
    """Return each listed device's group, and the name that it has without a subsystem."""
    listed: dict[str, tuple[Group, str]] = {}
    for group in parse_list(_text()).groups:
        for key, name in group.gpus.items():
            listed.setdefault(key[:4], (group, name))
    return listed


def _text() -> bytes:
    return resources.files("provision.planning.driver").joinpath("data/supported-gpus.json").read_bytes()
