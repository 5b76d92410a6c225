"""Runs benchmarks: ``python3 -m bench [NAME ...]`` (default: all), booting nodes for those that need them.

Each figure is printed next to its floor or competitor, measured alternately in the same run, as machines are noisy.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cluster import Cluster
from lab.machine.errors import LabError
from lab.nodes import NodeSpec, Site

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {version: "550.163.01", kernelModule: none}
"""
NODES = ("b1", "b2", "b3")
ALONE = (
    "hook",
    "plugin",
    "starts/interpreters",
    "daemons/claims",
    "daemons/slices",
    "preference",
    "provision",
    "rollout",
    "fleet",
    "simulation",
    "shares",
    "gpushare",
    "scale",
)
BENCHMARKS = (*ALONE, "apply", "bare", "driver", "upgrade", "cluster", "burst")


def run(script: str, *arguments: str) -> None:
    """Run one benchmark with its output on the terminal."""
    print(f"\n== {script}", flush=True)
    subprocess.run([sys.executable, "-P", str(HERE / script), *arguments], check=True)


def bench_apply(site: Site) -> None:
    """Bring three nodes to a declaration, then measure an apply that has nothing to do."""
    for name in NODES:
        site.up(NodeSpec(name, gpus=4, driver_module="550.163.01"))
    with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
        declaration = Path(folder, "grapnel.yaml")
        declaration.write_text(DECLARATION)
        where = ["-f", str(declaration), "-i", str(site.inventory_path)]
        grapnel = Path(sys.executable).with_name("grapnel")
        subprocess.run([str(grapnel), "apply", "--yes", *where], check=True, stdout=subprocess.DEVNULL)
        run("nodes/apply.py", str(site.inventory_path), "-f", str(declaration))


def bench_on_nodes(names: Sequence[str]) -> None:
    """Run those that need nodes, and remove the nodes afterwards."""
    site = Site("bench")
    try:
        if "apply" in names:
            site.destroy()
            bench_apply(site)
        if "bare" in names:
            run("nodes/bare.py", "--name", f"{site.name}-bare")
        if "driver" in names:
            run("nodes/driver.py", "--name", f"{site.name}-driver")
        if "upgrade" in names:
            run("nodes/upgrade.py", "--name", f"{site.name}-fleet")
        if "cluster" in names:
            site.destroy()
            run("nodes/cluster.py", "--name", site.name)
        if "burst" in names:
            run("nodes/burst.py", "--name", f"{site.name}-burst")
    finally:
        Cluster(site.name).down()  # the site too; an interrupted script has no time to clean up itself


def main() -> int:
    """Run the benchmarks; exit status 0, or 1 with the reason."""
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; without a name, all")
    names = parser.parse_args().names or BENCHMARKS
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        parser.error(f"unknown benchmark {unknown[0]}: choose from {', '.join(BENCHMARKS)}")
    os.environ["GRAPNEL_PAYLOAD"] = str(HERE.parent / "dist" / "payload")
    try:
        for name in ALONE:
            if name in names:
                run(f"{name}.py")
        if set(names) - set(ALONE):
            bench_on_nodes(names)
    except (LabError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
