"""Every benchmark that needs no nodes, one round of it: it ends with its figures, whatever they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import ALONE

pytestmark = [
    pytest.mark.functional,  # whole processes; without Go or root nothing of NVIDIA's stands beside
    pytest.mark.timeout(900),  # most of it is the start of what is measured
]

BENCH = Path(__file__).parents[2] / "bench"
ONE_ROUND = {
    "hook": ("--rounds", "1", "--restarts", "1", "--no-history"),
    "plugin": (
        *("--calls", "20", "--starts", "1", "--growth", "10", "--allocations", "10"),
        *("--idle-seconds", "1", "--settle-seconds", "0.2", "--no-history"),
    ),
    "starts/interpreters": ("--rounds", "1"),
    "daemons/claims": ("--rounds", "5"),
    "daemons/slices": ("--gpus", "3", "--quiet-seconds", "1"),
    "preference": ("--rounds", "1"),
    "provision": ("--nodes", "2", "--rounds", "1"),
    "rollout": ("--nodes", "40", "--rounds", "1"),
    "simulation": ("--nodes", "60", "--domains", "6"),
    "shares": ("--calls", "10"),
    "gpushare": ("--rounds", "1"),
    "scale": ("--nodes", "20", "--changes", "2", "--idle-seconds", "1", "--job-nodes", "2"),
    "fleet": ("--fleets", "10", "--changed", "2", "--drained", "10", "--nodes", "20"),
}
SLOWEST = {
    *("daemons/claims", "daemons/slices", "fleet", "hook", "plugin", "provision", "scale", "shares"),
    "starts/interpreters",  # whose modules tests/provision/payload loads by each Python
}
VERDICTS = {
    "hook": ("at most",),
    "plugin": ("memory with 8 GPUs, PSS", "kubelet's folder vanished, slowest", "preferred among 64 GPUs"),
    "starts/interpreters": ("hook on 3.11", "daemon on 3.11"),
    "daemons/claims": ("NodePrepareResources", "a claim: p99 at most", "memory: at most"),
    "daemons/slices": (
        *("taint in the API server", "the kubelet starts again", "5000 nodes, nothing happens"),
        "while nothing happens nothing is asked, watches aside: kept",
    ),
    "preference": ("tangle   64 GPUs",),
    "provision": ("grapnel --help", "in a process with limits", "text, all different", "JSON"),
    "rollout": ("10 drained of 8 pods each", "slowest: "),
    "simulation": ("60 nodes in 6 domains", "of CPU"),
    "gpushare": ("filter, 1000 nodes", "bind, 50 at the same moment"),
    "shares": ("prefer 2", "800 shares are allocatable", "list of 8 GPUs"),
    "scale": ("20 nodes, 80 pods", "a change is acted on after", "a controller that lists every", "2 nodes rolled out"),
    "fleet": ("an empty node is released", "80 evictions, 70 writes", "within 200 MiB"),
}


def test_there_is_one_round_of_every_benchmark_that_needs_no_nodes() -> None:
    assert set(ONE_ROUND) == set(VERDICTS) == set(ALONE)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.long) if each in SLOWEST else each for each in ALONE]
)
def test_a_benchmark_ends_with_its_verdict(name: str) -> None:
    if name == "hook" and os.geteuid() != 0:
        pytest.skip("containers are started: needs root")
    command = [sys.executable, "-P", str(BENCH / f"{name}.py"), *ONE_ROUND[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    for words in VERDICTS[name]:
        assert words in done.stdout
