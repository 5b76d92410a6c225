"""Measures the first apply of a bare node, compared with the same packages and files by hand in one script.

    python bench/bare.py [--rounds 2] [--name bench-bare]

Both bring an equal, newly booted node to the same end, alternately: grapnel, facts, plan and reports included; and a
shell script with the packages' exact versions, an archive of the files that an apply has left, and the units to start,
as somebody would write it who knows all of it already. The processor seconds are those of the node, and for grapnel
those of the controller as well. What staging takes of them is measured on one more node: the script does nothing like
it. Needs root, nodes, the payload.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.stage.figures import Spread
from bench.stage.pods import cpu_s
from bench.stage.processes import measure
from lab.machine.errors import LabError
from lab.nodes import NodeSpec, Site

if TYPE_CHECKING:
    from lab.nodes import Node

VERSION: Final = "550.163.01"
DECLARATION: Final = f"""\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{VERSION}", kernelModule: none}}
"""
LIMIT: Final = 1.6
GRAPNEL: Final = (sys.executable, "-c", "import sys, provision.cli; sys.exit(provision.cli.main())")
FILES: Final = "etc/grapnel etc/containerd etc/apt/preferences.d etc/systemd/system/grapnel-* usr/lib/grapnel"
ARCHIVE: Final = "root/files.tar"
UNITS: Final = "grapnel-inventory.service grapnel-inventory.path containerd.service grapnel-node.service"


@dataclass(frozen=True)
class Took:
    """Seconds on the clock, and of the processor: the node's, and the controller's where it has a part."""

    wall_s: float
    node_s: float
    controller_s: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """What the script has to know: packages as name=version, the archive of files."""

    packages: tuple[str, ...]
    files: bytes

    def script(self) -> str:
        """Return the script."""
        names = [each.partition("=")[0] for each in self.packages if "nvidia" in each or "cuda" in each]
        return (
            "apt-get update -q\n"
            "DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends "
            f"{shlex.join(self.packages)}\n"
            f"apt-mark hold {shlex.join(names)}\n"
            f"tar -C / -xf /{ARCHIVE}\nsystemctl daemon-reload\nsystemctl enable --now {UNITS}\n"
            "systemctl restart containerd.service\n"
        )


def packages(node: Node) -> set[str]:
    """Return the installed packages of a node as name=version."""
    return set(node.run(["dpkg-query", "-W", "-f", "${Package}=${Version}\\n"]).stdout.split())


def boot(site: Site) -> Node:
    """Return a node that nothing was done to."""
    return site.up(NodeSpec("bare", gpus=4, driver_module=VERSION))


def command(site: Site, folder: Path, *words: str) -> tuple[str, ...]:
    """Return a verb of grapnel for the site's nodes."""
    return (*GRAPNEL, *words, "-f", str(folder / "grapnel.yaml"), "-i", str(site.inventory_path))


def by_grapnel(site: Site, folder: Path) -> tuple[Took, Recipe]:
    """Apply to a new node; returns what it took, and what it comes to."""
    node = boot(site)
    before, used = packages(node), cpu_s(node)
    cost = measure(command(site, folder, "apply", "--yes"))
    took = Took(cost.wall_s, cpu_s(node) - used, cost.cpu_s)
    added = tuple(sorted(packages(node) - before))
    node.run(["sh", "-c", f"cd / && tar -cf /{ARCHIVE} {FILES}"])
    recipe = Recipe(added, (node.root / ARCHIVE).read_bytes())
    site.remove("bare")
    return took, recipe


def staging(site: Site, folder: Path) -> float:
    """Return the processor seconds of a node for staging, with the program that does it, beyond a look at the node."""
    node = boot(site)
    measure(command(site, folder, "plan"))  # refreshes the lists of packages
    spent = [cpu_s(node)]
    for verb in ("plan", "stage"):
        measure(command(site, folder, verb))
        spent.append(cpu_s(node))
    site.remove("bare")
    before, looked, staged = spent
    return staged - looked - (looked - before)


def by_hand(site: Site, recipe: Recipe) -> Took:
    """Run the script on a new node."""
    node = boot(site)
    (node.root / ARCHIVE).write_bytes(recipe.files)
    (node.root / "root/install.sh").write_text(recipe.script())
    began, used = time.monotonic(), cpu_s(node)
    node.run(["sh", "-e", "/root/install.sh"], timeout_s=900)
    took = Took(time.monotonic() - began, cpu_s(node) - used)
    missing = set(recipe.packages) - packages(node)
    site.remove("bare")
    if missing:
        raise LabError(f"the script left out {', '.join(sorted(missing))}")
    return took


def report(ours: list[Took], hand: list[Took], staged: list[float]) -> None:
    """Print both, and the ratio of the medians."""
    print(f"{'first apply of a bare node':34} {'min    med    max':>20}   {len(ours)} rounds")
    for name, values in (
        ("grapnel, seconds on the clock", [one.wall_s for one in ours]),
        ("by hand, seconds on the clock", [one.wall_s for one in hand]),
        ("grapnel, processor of the node", [one.node_s for one in ours]),
        ("… of which staging", staged),
        ("grapnel, of the controller", [one.controller_s for one in ours]),
        ("by hand, processor of the node", [one.node_s for one in hand]),
    ):
        print(f"{name:34} {Spread.of(values).show(1)}")
    for name, values, floor in (
        ("on the clock", [one.wall_s for one in ours], [one.wall_s for one in hand]),
        ("processor of the node", [one.node_s for one in ours], [one.node_s for one in hand]),
    ):
        ratio = Spread.of(values).mid / Spread.of(floor).mid
        print(f"ratio of medians, {name}: {ratio:.2f}, {'within' if ratio <= LIMIT else 'MORE THAN'} {LIMIT}")


def main() -> int:
    """Measure and print; exit status 0, or 1 with the reason."""
    parser = argparse.ArgumentParser(description="the first apply of a bare node, compared with a script")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--name", default="bench-bare", help="of the site")
    args = parser.parse_args()
    os.environ.setdefault("GRAPNEL_PAYLOAD", str(ROOT / "dist" / "payload"))  # and not one that was built earlier
    site = Site(args.name)
    ours: list[Took] = []
    hand: list[Took] = []
    staged: list[float] = []
    try:
        site.destroy()
        with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
            Path(folder, "grapnel.yaml").write_text(DECLARATION)
            for _ in range(args.rounds):
                took, recipe = by_grapnel(site, Path(folder))
                ours.append(took)
                hand.append(by_hand(site, recipe))
                staged.append(staging(site, Path(folder)))
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        site.destroy()
    report(ours, hand, staged)
    return 0


if __name__ == "__main__":
    sys.exit(main())
