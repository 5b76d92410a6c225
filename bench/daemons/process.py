"""What one process has and spends, as /proc tells it."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Memory:
    """One process, in MiB. PSS shares pages with other processes of the same files, USS does not count them."""

    rss: float
    pss: float
    uss: float

    def __str__(self) -> str:
        return f"RSS {self.rss:5.1f}  PSS {self.pss:5.1f}  USS {self.uss:5.1f} MiB"


def memory_of(pid: int) -> Memory:
    """Read smaps_rollup."""
    sizes: Counter[str] = Counter()
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0])
    uss = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return Memory(sizes["Rss"] / 1024, sizes["Pss"] / 1024, uss / 1024)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of the threads that it has now, to the nanosecond."""
    return sum(int(text.split()[0]) for text in _of_threads(pid, "schedstat")) / 1e9


def switches(pid: int) -> int:
    """Return how often its threads have gone to sleep: each time something will have woken them up."""
    lines = (line for text in _of_threads(pid, "status") for line in text.splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))


def _of_threads(pid: int, name: str) -> Iterator[str]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end meanwhile
            yield (task / name).read_text()


def open_things(pid: int) -> int:
    """Return how many descriptors and threads it has."""
    return sum(len(os.listdir(f"/proc/{pid}/{kind}")) for kind in ("fd", "task"))
