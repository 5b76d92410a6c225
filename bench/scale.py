"""Measures the controller on a real API server with many Nodes: memory, CPU, requests, how soon it notices a change.

The machines behind the Nodes answer at once, so that what is measured is the controller's own; KWOK plays their
kubelets. Beside it stands what an upgrade controller asks of the same API server that lists all Nodes and pods every
two minutes, and what it costs when the work reaches nodes as Jobs.
Run: python3 bench/scale.py [--nodes 100 1000 5000] [--changes 100] [--idle-seconds 60] [--save FILE]
     python3 bench/scale.py --draw docs/images/scale --from bench/history/scale.json
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec

from bench.fleets import figures, jobs
from bench.fleets.fleet import Fleet
from bench.fleets.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run has found."""

    sizes: tuple[figures.Size, ...] = ()
    jobs: figures.JobCosts | None = None


def show(lines: Iterable[str]) -> None:
    """Print what was found, at once."""
    print("", *lines, sep="\n", flush=True)


def measure(args: argparse.Namespace) -> Found:
    """Measure every size, each on an API server of its own."""
    sizes: list[figures.Size] = []
    for count in args.nodes:
        with Stage.running(is_played=not args.plain) as stage:
            fleet = Fleet(stage, count, args.pods_per_node, min(args.changes, count), args.idle_seconds)
            sizes.append(fleet.measure())
        show(figures.lines(sizes[-1]))
    found = None
    if args.job_nodes:
        with Stage.running(is_played=True) as stage:
            found = jobs.measure(stage, args.job_nodes)
        show(figures.job_lines(found))
    return Found(sizes=tuple(sizes), jobs=found)


def main() -> int:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[100, 1000, 5000])
    parser.add_argument("--pods-per-node", type=int, default=4)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--idle-seconds", type=float, default=60)
    parser.add_argument("--job-nodes", type=int, default=40, help="nodes that are rolled out by Jobs; 0: none")
    parser.add_argument("--plain", action="store_true", help="without KWOK: no heartbeats, and pods that never run")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures there as JSON")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="draw the figures of --from, and measure nothing")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="what --save has written")
    args = parser.parse_args()
    if args.draw and not args.source:
        parser.error("--draw needs --from FILE: what --save has written")
    if args.draw:
        from bench.fleets.curves import draw  # noqa: PLC0415 - a second for a library that measuring does not need

        for path in draw(msgspec.json.decode(args.source.read_bytes(), type=Found).sizes, args.draw):
            print(path)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started ends as well
    found = measure(args)
    if args.save:
        args.save.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
