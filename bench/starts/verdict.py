"""Holds figures against the budget. Pure: samples in, lines with a measured figure and its limit out.

What a hook costs is what it adds to a start without any, compared within each round: load and clock change between
rounds, and what stands side by side meets the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.starts.measuring import Cost

    Samples = Mapping[str, Sequence[Cost]]

BARE, EARLY = "python3 -I -S -c pass", "hook: nothing asked"
NO_HOOK = "no hook"
OURS, OURS_ALL = "our hook, 1 GPU", "our hook, 8 GPUs"
OURS_SAME = "our hook, 1 GPU, NVIDIA's files"  # every capability, so that the same files are mounted
THEIRS = "NVIDIA, 1 GPU"
NOTHING_RATIO = 1.3
GPU_RATIO = {"small": 0.33, "big": 0.20}
SAME_WORK_RATIO = {"small": 0.38, "big": 0.25}
EIGHT_GPUS_MS = 1.0
LIBRARIES_MS = 3.0
PEAK_MIB = 16.0


@dataclass(frozen=True)
class Line:
    """A figure and its limit; ``unit`` is "x" for a ratio."""

    name: str
    measured: float
    limit: float
    unit: str

    @property
    def is_kept(self) -> bool:
        """Whether the figure is within the budget."""
        return self.measured <= self.limit

    def __str__(self) -> str:
        verdict = "kept" if self.is_kept else "EXCEEDED"
        return f"{self.name:64} {self.measured:7.2f} {self.unit:3} at most {self.limit:5.2f}   {verdict}"


def row(image: str, variant: str) -> str:
    """Return the name of what is measured."""
    return f"{image}: {variant}"


def added_cpu(samples: Samples, image: str, variant: str) -> float:
    """Return the CPU that a variant adds to a start without hook: the median of the rounds' differences."""
    pairs = zip(samples[row(image, variant)], samples[row(image, NO_HOOK)], strict=True)
    return median(ours.cpu - without.cpu for ours, without in pairs)


def added_wall(samples: Samples, image: str, variant: str) -> float:
    """Return the wall time that a variant adds at the least: the difference of the minima."""
    ours, without = samples[row(image, variant)], samples[row(image, NO_HOOK)]
    return min(cost.wall for cost in ours) - min(cost.wall for cost in without)


def ratio_to_bare(samples: Samples) -> float:
    """Return what a container that asks for nothing costs, in bare interpreters (CPU)."""
    pairs = zip(samples[EARLY], samples[BARE], strict=True)
    return median(hook.cpu / bare.cpu for hook, bare in pairs)


def judge(samples: Samples, peak_mib: float) -> list[Line]:
    """Return a line for each budget that these samples can be held against."""
    lines = [Line("nothing asked, CPU to a bare interpreter", ratio_to_bare(samples), NOTHING_RATIO, "x")]
    for image, limit in GPU_RATIO.items():
        if row(image, THEIRS) in samples:
            cpu = added_cpu(samples, image, OURS) / added_cpu(samples, image, THEIRS)
            wall = added_wall(samples, image, OURS) / added_wall(samples, image, THEIRS)
            lines.append(Line(f"one GPU, {image} image, added CPU to NVIDIA's", cpu, limit, "x"))
            lines.append(Line(f"one GPU, {image} image, added minimum wall to NVIDIA's", wall, limit, "x"))
            same = added_cpu(samples, image, OURS_SAME) / added_cpu(samples, image, THEIRS)
            name = f"one GPU, {image} image, the same files, added CPU to NVIDIA's"
            lines.append(Line(name, same, SAME_WORK_RATIO[image], "x"))
        eight = added_cpu(samples, image, OURS_ALL) - added_cpu(samples, image, OURS)
        lines.append(Line(f"eight GPUs over one, {image} image, CPU", eight, EIGHT_GPUS_MS, "ms"))
    libraries = added_cpu(samples, "big", OURS) - added_cpu(samples, "small", OURS)
    lines.append(Line("1,500 libraries more in the image, CPU", libraries, LIBRARIES_MS, "ms"))
    lines.append(Line("peak memory of the hook", peak_mib, PEAK_MIB, "MiB"))
    return lines
