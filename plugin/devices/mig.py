"""MIG devices as things that can be offered: their profile, their nodes, and which layouts a strategy takes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.driver.snapshot import GpuFacts, MigFacts

NONE, SINGLE, MIXED = "none", "single", "mixed"
_NAMEABLE = re.compile(r"[0-9][0-9a-z.+-]{0,30}[0-9a-z]")
_PARTS = re.compile(r"(?:(?P<compute>[0-9]+)c\.)?(?P<gpu>[0-9]+)g\..+")


@dataclass(frozen=True)
class Slice:
    """A MIG device of a GPU that is offered. `nodes` are its capability nodes: name in `/dev`, path on the host.

    `problem` says why no container can be given it, "" where one can.
    """

    facts: MigFacts
    nodes: tuple[tuple[str, str], ...] = ()
    problem: str = ""


def short_profile(profile: str) -> str:
    """Return a profile without its compute slices where it has all of them: 1c.1g.5gb is 1g.5gb."""
    match = _PARTS.fullmatch(profile)
    is_whole = match is not None and match["compute"] == match["gpu"]
    return profile.partition(".")[2] if is_whole else profile


def why_not_offered(profile: str) -> str:
    """Return why MIG devices of a profile have no resource, "" where they have one.

    As in NVIDIA's plugin, a device has to have all compute slices of its GPU instance: others share its memory.
    """
    short = short_profile(profile)
    if not _NAMEABLE.fullmatch(short):
        return "the driver does not tell its profile"
    match = _PARTS.fullmatch(short)
    if match is not None and match["compute"]:
        return f"profile {profile} has only a part of the compute slices of its gpu instance"
    return ""


def resource_suffix(profile: str) -> str:
    """Return what a resource of this profile is called after `mig-`: 1g.10gb+me is 1g.10gb.me."""
    return short_profile(profile).replace("+", ".")


def is_nameable(profile: str) -> bool:
    """Whether a profile can stand in a name."""
    return _NAMEABLE.fullmatch(profile) is not None


def why_invalid(gpus: Sequence[GpuFacts]) -> str:
    """Return why a layout does not fit the strategy `single`, "" where it does: one profile on every GPU."""
    cut = [gpu for gpu in gpus if gpu.is_cut or gpu.mig]
    if not cut:
        return ""
    if any(not gpu.mig for gpu in cut):
        return "a GPU in MIG mode has no MIG device"
    if len(cut) < len(gpus):
        return "some GPUs are in MIG mode and others are not"
    profiles = {short_profile(each.profile) for gpu in cut for each in gpu.mig}
    if len(profiles) != 1 or not is_nameable(next(iter(profiles))):
        return "the MIG devices are not all of one profile"
    return ""
