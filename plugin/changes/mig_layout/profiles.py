"""The names of MIG profiles: one form for all the ways in which they are written. Pure.

NVML and nvidia-smi write `MIG 1g.10gb+me`, NVIDIA's mig-parted `1g.10gb+me`, and a device that has only some of its GPU
instance's compute slices is `1c.2g.20gb`. With all of them `2c.2g.20gb` is the same as `2g.20gb`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PREFIX = "MIG "
_NAME = re.compile(
    r"(?:(?P<compute>[1-9][0-9]?)c\.)?(?P<gpu>[1-9][0-9]?)g\.(?P<memory>[1-9][0-9]{0,3})gb(?P<more>(?:[+-][a-z.,]+)*)"
)


class DeviceProfile(NamedTuple):
    """A MIG device as it is asked for: the profile of its GPU instance, and the compute slices that it has of it."""

    instance: str
    compute: int

    @property
    def name(self) -> str:
        """The short name."""
        whole = int(self.instance.partition("g.")[0])
        return self.instance if self.compute == whole else f"{self.compute}c.{self.instance}"


def parse_profile(name: str) -> DeviceProfile:
    """Return what a name means, in whichever way it is written; raises ValueError."""
    match = _NAME.fullmatch(name.removeprefix(_PREFIX))
    if match is None:
        raise ValueError(f"{name[:64]!r} is not a mig profile such as 1g.10gb, 1g.10gb+me or 1c.2g.20gb")
    slices = int(match["gpu"])
    compute = int(match["compute"] or slices)
    if compute > slices:
        raise ValueError(f"{name} has more compute slices than its gpu instance")
    return DeviceProfile(f"{slices}g.{match['memory']}gb{match['more']}", compute)
