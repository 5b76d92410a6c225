"""A cluster of a benchmark's own, from its start to its removal, whatever ends the measurement."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from lab.cluster import Cluster
    from lab.cluster.spec import ClusterSpec

INTERRUPTED = 130


def on_cluster(cluster: Cluster, spec: ClusterSpec, measure: Callable[[Path], bool | None]) -> int:
    """Call `measure` with a folder while the cluster is up; return the exit status: 0, or 1 where it says False."""
    signal.signal(signal.SIGTERM, _interrupt)  # the cluster is not left behind
    try:
        cluster.down()
        try:
            cluster.up(spec)
            with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
                is_within = measure(Path(folder))
        finally:
            cluster.down()
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 1 if is_within is False else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
