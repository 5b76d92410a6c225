"""Measures an upgrade of three nodes by `grapnel apply`: a canary, then a domain, of which one node fails at first.

    python bench/nodes/upgrade.py [--name bench-fleet]

Debian's DKMS packages from 535 to 550 with modules that are staged, so that no node compiles. Printed are the whole
run and each node's time out of service: of the run in which a node fails and its domain goes back, and of the one
after its repair. The floor is what a person types on one of the same nodes, with everything at hand, measured
afterwards from the same files. Needs root, nodes, the payload.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.nodes.driver import STAGED, Bench, by_hand
from bench.stage.driver_changes import NEW, OLD
from bench.stage.rolling import CANARY, RIGHT, Fleet, boot
from lab.machine.errors import LabError
from lab.nodes import Site

PAYLOAD = Path(__file__).resolve().parents[2] / "dist" / "payload"
TIMEOUT_S = 1800


def main() -> int:
    """Measure and print; exit status 0, or 1 with the reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--name", default="bench-fleet", help="of the site")
    site = Site(parser.parse_args().name)
    try:
        site.destroy()
        with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
            measure(site, Path(folder))
    except (LabError, RuntimeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        site.destroy()
    return 0


def measure(site: Site, folder: Path) -> None:
    """Upgrade, fail, upgrade again, and do one node by hand."""

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"HOME": str(folder), "KUBECONFIG": "", "PATH": path, "XDG_STATE_HOME": str(folder / "state")}
        return subprocess.run(
            argv,
            cwd=folder,
            env={"GRAPNEL_PAYLOAD": str(PAYLOAD), **os.environ, **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    fleet = Fleet(boot(site, folder), folder, run)
    fleet.declare(OLD)
    changed(fleet, "apply", 0)
    fleet.declare(NEW)
    staged_s = changed(fleet, "stage", 0)
    print(f"\n{OLD} -> {NEW}, three nodes, DKMS, modules built beforehand; load {os.getloadavg()[0]:.1f}")
    print(f"  staged, GPUs in service                     {staged_s:8.1f} s")
    fleet.fail(RIGHT)
    show("one node of the domain fails", fleet, changed(fleet, "apply", 1))
    fleet.heal(RIGHT)
    show("after its repair", fleet, changed(fleet, "apply", 0))
    node = fleet.nodes[CANARY]
    for version in (OLD, NEW):
        node.run(["sh", "-c", f"mkdir -p /root/{version}; cp {STAGED}/*/packages/*{version}*.deb /root/{version}"])
    node.run(["systemctl", "stop", "grapnel-node"])  # it has the GPUs open
    bench = Bench(node, "dkms")
    by_hand(bench, OLD)
    took = by_hand(bench, NEW)
    print(f"  floor: the bare commands, one node, alone   {took.wall_s:8.1f} s")


def changed(fleet: Fleet, verb: str, status: int) -> float:
    """Run a verb to its expected end; return how long it took, in seconds."""
    began = time.monotonic()
    done = fleet.change(verb) if verb != "stage" else fleet.stage()
    if done.returncode != status:
        raise RuntimeError(f"grapnel {verb} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.monotonic() - began


def show(title: str, fleet: Fleet, took_s: float) -> None:
    """Print how long a run took, and how long each of its nodes was out of service."""
    print(f"  {title}: whole run{'':{32 - len(title)}} {took_s:8.1f} s")
    for name, record in sorted(fleet.records().items()):
        out_s = (datetime.fromisoformat(record["since"]) - datetime.fromisoformat(record["began"])).total_seconds()
        phases = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in record.get("took", {}).items())
        print(f"    {name} {record['phase']:9} out of service {out_s:6.1f} s ({phases})")


if __name__ == "__main__":
    sys.exit(main())
