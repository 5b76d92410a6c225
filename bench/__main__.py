"""``python3 -m bench``: every benchmark in turn, on nodes of its own where it needs some.

Figures are printed with their floor or peer beside them, measured in turn in the same run: these machines are noisy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.cluster import Cluster
from lab.machine.errors import LabError
from lab.nodes import NodeSpec, Site

HERE = Path(__file__).parent
DECLARATION = 'apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\nspec:\n  driver: {version: "550.163.01"}\n'
NODES = ("b1", "b2", "b3")


def run(script: str, *arguments: str) -> None:
    """Run one benchmark where a person can watch it."""
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
        run("apply.py", str(site.inventory_path), "-f", str(declaration))


def main() -> int:
    """Run them all; exit status 0, or 1 with the reason."""
    os.environ["GRAPNEL_PAYLOAD"] = str(HERE.parent / "dist" / "payload")
    site = Site("bench")
    try:
        run("hook.py")
        run("plugin.py")
        try:
            site.destroy()
            bench_apply(site)
            site.destroy()
            run("cluster.py", "--name", site.name)
        finally:
            Cluster(site.name).down()  # the site too; a script that is interrupted here has no time to clean up itself
    except (LabError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
