"""An engine that is killed from outside: ``killed_engine.py STATE_FILE NODE PREFIX...``; says when the node waits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tests.provision.cluster.slurm.fleet import Rollout, Steps, connect

if TYPE_CHECKING:
    from lab.slurm import SlurmMachine


class Elsewhere:
    """A Slurm that another process runs."""

    def __init__(self, *prefix: str) -> None:
        self.prefix = prefix


if __name__ == "__main__":
    state_file, node, *prefix = sys.argv[1:]
    slurm = cast("SlurmMachine", Elsewhere(*prefix))
    rollout = Rollout(connect(slurm, Path(state_file)), Steps(slurm, {node: node}), (node,))
    rollout.waits(node, "waits for job")
    sys.stdout.write(f"{node} waits\n")
    sys.stdout.flush()
    rollout.end()
