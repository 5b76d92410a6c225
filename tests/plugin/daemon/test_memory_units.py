"""What the daemon says of memory units: nothing is loaded before there are some, and nothing is missed by that."""

from __future__ import annotations

import subprocess
import sys

import pytest

from plugin.daemon.optional.memory_units import MemoryUnits
from plugin.gpushare.books.report import ANNOTATION, parse_report
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from tests.plugin.daemon_process import REPOSITORY

MEMORY, GIB = "aliyun.com/gpu-mem", 1 << 30
LISTED = (DeviceAssignment(PodContainer("jobs", "p", "c"), MEMORY, ("GPU-a/0", "GPU-a/1")),)
CARD = ("GPU-a", 0, 10, True)


def test_what_was_listed_before_is_said_with_the_first_cards() -> None:
    said: list[str] = []
    units = MemoryUnits(lambda found: said.append(found[ANNOTATION] or ""))
    units.offered("", 0, ())
    units.allocated(MEMORY, 1.0)
    units.listed(LISTED, 2.0)
    assert said == []
    units.offered(MEMORY, GIB, (CARD,))
    assert [each.units for each in parse_report(said[0]).holdings] == [2]
    units.allocated(MEMORY, 3.0)
    units.listed((), 4.0)
    assert parse_report(said[1]).holdings == ()
    units.offered("", 0, ())
    assert said[2:] == [""]


@pytest.mark.slow
def test_nothing_is_loaded_where_no_memory_is_offered_in_units() -> None:
    script = (
        "import sys; from plugin.daemon.optional.memory_units import MemoryUnits; units = MemoryUnits(print); "
        "units.offered('', 0, ()); units.listed((), 1.0); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert not [name for name in loaded.stdout.split() if name.startswith("plugin.gpushare")]
