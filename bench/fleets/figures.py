"""What was found of a fleet of one size, its limits, and the lines that tell it. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_MIB_AT_1000, MAX_MIB_PER_NODE = 100.0, 0.05
MAX_NOTICED_S: Final = 2.0


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody costs in a minute: ``server_cpu_s`` is what the API server and etcd need for it beside idling."""

    requests: float
    megabytes: float
    server_cpu_s: float
    cpu_s: float = 0.0


class Rolled(msgspec.Struct, frozen=True, kw_only=True):
    """A roll-out of all nodes to its end: how many were ``failed`` on purpose, and what it cost."""

    seconds: float
    failed: int
    cpu_s: float
    requests: int
    server_cpu_s: float


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet of one size. ``played_by`` is who plays its kubelets. Memory is in MiB, times in seconds."""

    nodes: int
    pods: int
    played_by: str
    player_mib: float
    player_cpu_s: float
    created_s: float
    looked_at_s: float
    looked_at_cpu_s: float
    idle: Rates
    idle_server_cpu_s: float
    memory_idle: float
    memory_peak: float
    noticed: tuple[float, ...]
    requests_for_a_change: float
    rolled: Rolled
    peer: Rates
    server_mib: float


class JobCosts(msgspec.Struct, frozen=True, kw_only=True):
    """A roll-out by Jobs. ``asked`` is what the controller asks, ``served`` what everybody asks, for each Job."""

    nodes: int
    jobs: int
    seconds: float
    asked: float
    served: dict[str, float]
    server_cpu_s: float
    manager_cpu_s: float


def allowed_mib(nodes: int) -> float:
    """Return the memory that the controller may have at most with so many nodes."""
    return MAX_MIB_AT_1000 + max(0, nodes - 1000) * MAX_MIB_PER_NODE


def quantile(values: Sequence[float], part: float) -> float:
    """Return the least value that ``part`` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * part) - 1)]


def verdict(found: float, limit: float) -> str:
    """Return a limit beside what was found."""
    return f"(limit {limit:.0f}: {'kept' if found <= limit else 'MISSED'})"


def lines(size: Size) -> Iterator[str]:
    """Yield what is printed of a size."""
    noticed, rolled, idle, peer = quantile(size.noticed, 0.99), size.rolled, size.idle, size.peer
    yield f"{size.nodes} nodes, {size.pods} pods, kubelets: {size.played_by}, made in {size.created_s:.0f} s"
    if size.player_mib:
        yield f"  {size.played_by:38}{size.player_mib:8.1f} MiB   ({size.player_cpu_s:.0f} s of CPU)"
    yield f"  API server                            {size.server_mib:8.1f} MiB"
    yield f"  all looked at and found as declared   {size.looked_at_s:8.1f} s     ({size.looked_at_cpu_s:.0f} s of CPU)"
    yield f"  memory, nothing changing              {size.memory_idle:8.1f} MiB"
    peak = verdict(size.memory_peak, allowed_mib(size.nodes))
    yield f"  memory at most                        {size.memory_peak:8.1f} MiB   {peak}"
    yield f"  CPU while nothing changes             {idle.cpu_s:8.2f} s a minute"
    yield f"  ... of the API server for it          {idle.server_cpu_s:8.2f} s, beside {size.idle_server_cpu_s:.2f} s"
    yield f"  requests while nothing changes        {idle.requests:8.1f} a minute, {idle.megabytes:.2f} MB"
    yield f"  a change is acted on after, median    {quantile(size.noticed, 0.5):8.2f} s"
    yield f"  ... p99                               {noticed:8.2f} s     {verdict(noticed, MAX_NOTICED_S)}"
    yield f"  requests for a changed node           {size.requests_for_a_change:8.1f}"
    yield f"  a roll-out, {rolled.failed:4} of them fail         {rolled.seconds:8.1f} s"
    yield f"  ... CPU of the controller             {rolled.cpu_s:8.1f} s"
    yield f"  ... requests for each node            {rolled.requests / size.nodes:8.1f}"
    yield f"  ... CPU of the API server             {rolled.server_cpu_s:8.1f} s"
    yield f"  a controller that lists every 120 s   {peer.requests:8.1f} a minute, {peer.megabytes:.2f} MB"
    yield f"  ... CPU of the API server for it      {peer.server_cpu_s:8.2f} s a minute"


def job_lines(found: JobCosts) -> Iterator[str]:
    """Yield what is printed of Jobs."""
    yield f"{found.nodes} nodes rolled out by {found.jobs} Jobs in {found.seconds:.0f} s"
    yield f"  requests of the controller for a Job  {found.asked:8.1f}"
    yield f"  requests of everybody for a Job       {sum(found.served.values()):8.1f}"
    for name, times in sorted(found.served.items(), key=lambda each: -each[1]):
        if times >= 0.05:
            yield f"  ... {name:34}{times:8.1f}"
    yield f"  CPU of API server and etcd for a Job  {found.server_cpu_s / found.jobs * 1000:8.0f} ms"
    yield f"  ... of kube-controller-manager        {found.manager_cpu_s / found.jobs * 1000:8.0f} ms"
