"""Measures the first apply of a bare node, compared with the same packages and files by hand in one script.

    python bench/nodes/bare.py [--rounds 2] [--name bench-bare]

Both bring an equal, newly booted node to the same end, alternately: grapnel, facts, plan and reports included; and a
shell script with the packages' exact versions, the archives of the release, an archive of the configuration that an
apply has left, and the units to start, as somebody would write it who knows all of it already. Like an apply it
compiles the release, since the daemon cannot write below /usr; a second script is handed a release that was compiled on
another node. The processor seconds are those of the node, and for grapnel those of the controller as well. What staging
takes of them is measured on one more node: the scripts do nothing like it. Needs root, nodes, the payload.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.stage.figures import Spread
from bench.stage.pods import cpu_s
from bench.stage.processes import measure
from lab.machine.errors import LabError
from lab.nodes import NodeSpec, Site
from provision.planning.supply.payload.store import load_payload

if TYPE_CHECKING:
    from lab.nodes import Node

ROOT: Final = Path(__file__).resolve().parents[2]
VERSION: Final = "550.163.01"
DECLARATION: Final = f"""\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{VERSION}", kernelModule: none}}
"""
LIMIT: Final = 1.6
GRAPNEL: Final = (sys.executable, "-c", "import sys, provision.cli; sys.exit(provision.cli.main())")
FILES: Final = "etc/grapnel etc/containerd etc/apt/preferences.d etc/systemd/system/grapnel-*"
RELEASE: Final = "usr/lib/grapnel"
UNITS: Final = "grapnel-inventory.service grapnel-inventory.path containerd.service grapnel-node.service"


@dataclass(frozen=True)
class Took:
    """Seconds on the clock, and of the processor: the node's, and the controller's where it has a part."""

    wall_s: float
    node_s: float
    controller_s: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """What the scripts have to know: packages as name=version, archives of the configuration and of the release.

    ``parts`` are the release's archives as they are published, ``compiled`` is what an apply makes of them.
    """

    packages: tuple[str, ...]
    configuration: bytes
    parts: dict[str, bytes]
    compiled: bytes

    def archives(self, *, is_compiled: bool) -> dict[str, bytes]:
        """Return the files that a script is handed, by their names."""
        release = {"compiled": self.compiled} if is_compiled else self.parts
        return {"configuration": self.configuration, **release}

    def script(self, *, is_compiled: bool) -> str:
        """Return a script."""
        names = [each.partition("=")[0] for each in self.packages if "nvidia" in each or "cuda" in each]
        unpack = ["tar -C / -xf /root/compiled.tar"] if is_compiled else [install(part) for part in self.parts]
        release = "\n".join(unpack)
        return (
            "apt-get update -q\n"
            "DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends "
            f"{shlex.join(self.packages)}\n"
            f"apt-mark hold {shlex.join(names)}\n"
            f"{release}\ntar -C / -xf /root/configuration.tar\n"
            f"systemctl daemon-reload\nsystemctl enable --now {UNITS}\nsystemctl restart containerd.service\n"
        )


def install(part: str) -> str:
    """Return the lines that unpack and compile a part of the release; a hook is compiled into its pack."""
    folder = f"/{RELEASE}/releases/{part}"
    compiling = {"hook": f"python3 -IS {folder}/grapnel-hook pack"}.get(
        part, f"python3 -m compileall -q --invalidation-mode unchecked-hash {folder} || :"
    )
    unpacking = f"mkdir -p {folder}\ntar -C {folder} -xf /root/{part}.tar"
    return f"{unpacking}\n{compiling}\nln -s releases/{part} /{RELEASE}/{part}"


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
    recipe = Recipe(added, archive(node, FILES), release(node), archive(node, RELEASE))
    site.remove("bare")
    return took, recipe


def archive(node: Node, files: str) -> bytes:
    """Return a tar archive of files of a node, named as a shell expands them."""
    node.run(["sh", "-c", f"cd / && tar -cf /root/files.tar {files}"])
    return (node.root / "root/files.tar").read_bytes()


def release(node: Node) -> dict[str, bytes]:
    """Return the archives of the payload that a node has the parts of."""
    payload = load_payload(Path(os.environ["GRAPNEL_PAYLOAD"]))
    digests = {part: (node.root / RELEASE / part / "RELEASE") for part in ("driver", "hook", "node")}
    paths = {one.digest: one.path for one in (payload.driver, payload.hook, payload.node)}
    return {part: Path(paths[text.read_text().strip()]).read_bytes() for part, text in digests.items()}


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


def by_hand(site: Site, recipe: Recipe, *, is_compiled: bool = False) -> Took:
    """Run a script on a new node."""
    node = boot(site)
    for name, content in recipe.archives(is_compiled=is_compiled).items():
        (node.root / f"root/{name}.tar").write_bytes(content)
    (node.root / "root/install.sh").write_text(recipe.script(is_compiled=is_compiled))
    began, used = time.monotonic(), cpu_s(node)
    node.run(["sh", "-e", "/root/install.sh"], timeout_s=900)
    took = Took(time.monotonic() - began, cpu_s(node) - used)
    missing = set(recipe.packages) - packages(node)
    site.remove("bare")
    if missing:
        raise LabError(f"the script left out {', '.join(sorted(missing))}")
    return took


def report(ours: list[Took], hand: list[Took], handed: list[Took], staged: list[float]) -> None:
    """Print all, and the ratios of the medians."""
    print(f"{'first apply of a bare node':34} {'min    med    max':>20}   {len(ours)} rounds")
    for name, values in (
        ("grapnel, seconds on the clock", [one.wall_s for one in ours]),
        ("by hand, seconds on the clock", [one.wall_s for one in hand]),
        ("grapnel, processor of the node", [one.node_s for one in ours]),
        ("… of which staging", staged),
        ("grapnel, of the controller", [one.controller_s for one in ours]),
        ("by hand, processor of the node", [one.node_s for one in hand]),
        ("by hand, release compiled elsewhere", [one.node_s for one in handed]),
    ):
        print(f"{name:34} {Spread.of(values).show(1)}")
    for name, values, floor in (
        ("on the clock", [one.wall_s for one in ours], [one.wall_s for one in hand]),
        ("processor of the node", [one.node_s for one in ours], [one.node_s for one in hand]),
        ("by a release compiled elsewhere", [one.node_s for one in ours], [one.node_s for one in handed]),
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
    handed: list[Took] = []
    staged: list[float] = []
    try:
        site.destroy()
        with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
            Path(folder, "grapnel.yaml").write_text(DECLARATION)
            for _ in range(args.rounds):
                took, recipe = by_grapnel(site, Path(folder))
                ours.append(took)
                hand.append(by_hand(site, recipe))
                handed.append(by_hand(site, recipe, is_compiled=True))
                staged.append(staging(site, Path(folder)))
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        site.destroy()
    report(ours, hand, handed, staged)
    return 0


if __name__ == "__main__":
    sys.exit(main())
