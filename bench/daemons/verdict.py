"""Holds a device plugin's figures against the limits. Pure: samples in, lines with a figure and its limit out."""

from __future__ import annotations

from statistics import median, quantiles
from typing import TYPE_CHECKING

from bench.starts.verdict import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Samples = Mapping[str, Sequence[float]]

MEMORY_PSS, MEMORY_USS = "memory, PSS", "memory, USS"
IDLE_CPU, WAKE_UPS = "idle, % of a core", "idle, wake-ups a second"
START, START_CPU = "start to the first list", "CPU to the first list"
EMPTY, ALLOCATE = "empty call", "Allocate"
STREAMS, CONNECTIONS, ALLOCATIONS = "growth by streams", "growth by connections", "growth by allocations"
RESTART, FOLDER = "kubelet is back", "kubelet is back, folder was away"
HEALTH, HEALTH_LATER = "health event to list", "health event to list, after a broken stream"
STOP = "SIGTERM to the end"
PREFERRED_MS = {8: 1.0, 16: 10.0, 64: 50.0}  # by GPUs of the node


def preference(gpus: int, size: int) -> str:
    """Return the name of a choice."""
    return f"{gpus} GPUs, {size} preferred"


def row(who: str, what: str) -> str:
    """Return the name of what is measured."""
    return f"{who}: {what}"


def percentile_99(values: Sequence[float]) -> float:
    """Return the 99th percentile, of few values the largest."""
    return quantiles(values, n=100)[98] if len(values) >= 100 else max(values)


_LIMITS: tuple[tuple[str, str, Callable[[Sequence[float]], float], float, str], ...] = (
    ("memory with 8 GPUs, PSS", MEMORY_PSS, median, 30, "MiB"),
    ("memory with 8 GPUs, USS", MEMORY_USS, median, 24, "MiB"),
    ("idle CPU, % of a core", IDLE_CPU, median, 0.2, "%"),
    ("idle wake-ups a second", WAKE_UPS, median, 5, "/s"),
    ("start to the first list, median", START, median, 150, "ms"),
    ("Allocate, 99th percentile", ALLOCATE, percentile_99, 2, "ms"),
    ("2,000 streams, growth", STREAMS, median, 1, "MiB"),
    ("2,000 connections, growth", CONNECTIONS, median, 1, "MiB"),
    ("allocations, growth", ALLOCATIONS, median, 1, "MiB"),
    ("kubelet's socket recreated, slowest", RESTART, max, 300, "ms"),
    ("kubelet's folder vanished, slowest", FOLDER, max, 300, "ms"),
)


def judge(samples: Samples, who: str) -> list[Line]:
    """Return a line for each limit that one plugin's samples can be held against."""
    lines = [
        Line(name, of(samples[row(who, what)]), limit, unit)
        for name, what, of, limit, unit in _LIMITS
        if row(who, what) in samples
    ]
    if row(who, EMPTY) in samples:
        ratio = median(samples[row(who, ALLOCATE)]) / median(samples[row(who, EMPTY)])
        lines.append(Line("Allocate to an empty call, medians", ratio, 1.5, "x"))
    for gpus, limit in PREFERRED_MS.items():
        medians = [
            median(found)
            for size in range(1, gpus + 1)
            if (found := samples.get(row(who, preference(gpus, size)))) is not None
        ]
        if medians:
            lines.append(Line(f"preferred among {gpus} GPUs, slowest size, median", max(medians), limit, "ms"))
    return lines
