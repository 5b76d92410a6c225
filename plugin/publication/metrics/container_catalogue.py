"""The metrics of what containers were given, may have and use of a GPU's memory: part of the table in `catalogue`."""

from __future__ import annotations

from plugin.publication.metrics.exposition import POD_LABELS, Metric

_LABELS = ("gpu", "UUID", "Hostname", *POD_LABELS)
CONTAINER_MEMORY_ALLOCATED = Metric(
    "grapnel_container_gpu_memory_allocated_bytes",
    "gauge",
    "Memory of a GPU that the kubelet gave a container, as units of it.",
    _LABELS,
)
CONTAINER_MEMORY_LIMIT = Metric(
    "grapnel_container_gpu_memory_limit_bytes",
    "gauge",
    "Memory of a GPU that the driver lets a container have.",
    _LABELS,
)
CONTAINER_MEMORY_USED = Metric(
    "grapnel_container_gpu_memory_used_bytes",
    "gauge",
    "Memory of a GPU that a container with units or shares of it has: counted for its limit, or by its processes.",
    _LABELS,
)
CONTAINER_MEMORY_FAIR = Metric(
    "grapnel_container_gpu_memory_fair_bytes",
    "gauge",
    "Memory of a GPU divided by its shares, times those of a container; nobody keeps it to that, unless through MPS.",
    _LABELS,
)
CONTAINER_MEMORY_OVER = Metric(
    "grapnel_container_gpu_memory_over_bytes",
    "gauge",
    "Memory of a GPU that a container has beyond its units, or beyond its fair part; 0 within it.",
    _LABELS,
)
CONTAINER_MEMORY = (
    CONTAINER_MEMORY_ALLOCATED,
    CONTAINER_MEMORY_LIMIT,
    CONTAINER_MEMORY_USED,
    CONTAINER_MEMORY_FAIR,
    CONTAINER_MEMORY_OVER,
)
