"""Measures how long a driver change takes the GPUs out of service, compared with the bare commands on the same node.

    python bench/nodes/driver.py [--rounds 2] [--only loaded|dkms] [--unstaged] [--name bench-driver]

Both change between two drivers, alternately, from the same files: grapnel's program (its own figure
``out_of_service_s``), and a script that unloads, installs the packages, and loads. ``loaded``: the module is on the
disk already. ``dkms``: Debian's DKMS packages with a built module handed to both, so that neither compiles; with
``--unstaged`` also the bare commands without one, which compile: minutes. There is no initramfs: grapnel rebuilds it
when the GPUs are in service again, the bare commands before. Processor seconds are those of the whole node meanwhile,
for a machine that does something else as well. What the node daemon adds on the node (release, verify, resume) is
beside the same number of commands that do nothing; the connection's part is in both. Needs root, nodes, the payload.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.stage import daemon_verbs
from bench.stage.by_hand import MODULES
from bench.stage.daemon_verbs import Verbs
from bench.stage.driver_changes import DKMS_PACKAGES, NEW, OLD, PROGRAM, USER_SPACE, make_change
from bench.stage.figures import Spread
from bench.stage.pods import cpu_s
from lab import modules
from lab.machine.errors import LabError
from lab.nodes import NodeSpec, Site
from provision.planning.driver_change import change_id
from provision.planning.supply.payload.archive import write_archive
from provision.planning.supply.payload.sources import find_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node
    from provision.planning.driver_change import DriverChange

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900
COMPILE_TIMEOUT_S = 3600
LIMITS = {"loaded": 2.0, "dkms": 1.3}  # times the bare commands
LIMIT_OF_UNSTAGED = 1 / 6
LIMIT_OF_VERBS_S = 2.0
STAGED = "/var/lib/grapnel/driver/staged"
UNITS = {"loaded": "module on the disk already", "dkms": "DKMS, module built beforehand"}


@dataclass(frozen=True)
class Took:
    """What one change took: seconds out of service, processor seconds of the node, and the machine's load then."""

    wall_s: float
    cpu_s: float
    load: float

    def __str__(self) -> str:
        return f"{self.wall_s:.1f} (processor {self.cpu_s:.1f}, load {self.load:.1f})"


@dataclass(frozen=True)
class Pair:
    """One change by the program with the daemon's verbs around it, and the same by the bare commands."""

    ours: Took
    bare: Took
    verbs: Verbs


@dataclass(frozen=True)
class Bench:
    """A node, and whether its module comes from packages."""

    node: Node
    kind: str

    @property
    def has_dkms(self) -> bool:
        return self.kind == "dkms"

    def change(self, version: str) -> DriverChange:
        """Return the change to a version."""
        if self.has_dkms:
            return make_change(version, DKMS_PACKAGES, self.node.kernel_release)
        return make_change(version, USER_SPACE)

    def identifier(self, version: str) -> str:
        return change_id(self.change(version))


def main() -> int:
    """Measure and print; exit status 0, or 1 with the reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2, help="there and back (default 2)")
    parser.add_argument("--only", choices=tuple(LIMITS), help="one of the two")
    parser.add_argument("--unstaged", action="store_true", help="with dkms, also the bare commands that compile")
    parser.add_argument("--name", default="bench-driver", help="of the site")
    options = parser.parse_args()
    site = Site(options.name)
    try:
        site.destroy()
        for kind in (options.only,) if options.only else tuple(LIMITS):
            bench = prepare(site, kind)
            pairs = list(measure(bench, options.rounds))
            unstaged = by_hand(bench, NEW, staged=False) if options.unstaged and bench.has_dkms else None
            show(kind, pairs, unstaged)
    except (LabError, RuntimeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        site.destroy()
    return 0


def measure(bench: Bench, rounds: int) -> Iterator[Pair]:
    """Change between the drivers, in each direction once by the program and once by hand; ends with the older one."""
    for _ in range(rounds):
        ours, verbs = between_verbs(bench, NEW)
        bare_back = by_hand(bench, OLD)
        bare = by_hand(bench, NEW)
        ours_back, verbs_back = between_verbs(bench, OLD)
        yield Pair(ours, bare, verbs)
        yield Pair(ours_back, bare_back, verbs_back)


def between_verbs(bench: Bench, version: str) -> tuple[Took, Verbs]:
    """Swap as an upgrade does: released before, verified and resumed after; leaves the node released, as by hand."""
    node = bench.node
    daemon_verbs.resume(node)
    began_s = cpu_s(node)
    released_s = daemon_verbs.release(node)
    before_s = cpu_s(node)
    took = by_program(bench, version)
    after_s = cpu_s(node)
    verified_s, resumed_s = daemon_verbs.verify(node, version), daemon_verbs.resume(node)
    used_s = before_s - began_s + cpu_s(node) - after_s
    verbs = Verbs(released_s, verified_s, resumed_s, daemon_verbs.nothing(node), used_s)
    print(f"  daemon {version}: {verbs}; three commands that do nothing {verbs.nothing_s:.2f}", flush=True)
    daemon_verbs.release(node)
    return took, verbs


def prepare(site: Site, kind: str) -> Bench:
    """Boot a node, install the daemon, the program and the older driver, and stage both changes."""
    is_builder = kind == "dkms"
    module = "" if is_builder else OLD
    node = site.up(NodeSpec(f"b-{kind}", suite="trixie", gpus=4, driver_module=module, builder=is_builder))
    bench = Bench(node, kind)
    with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
        archive, _ = write_archive(Path(folder), "driver", find_sources(ROOT).driver_entries())
        home = node.root / str(Path(PROGRAM).parent).lstrip("/")
        home.mkdir(parents=True)
        subprocess.run(["tar", "-xf", str(archive), "-C", str(home)], check=True)
    node.run(["sh", "-c", "apt-get -q update; rm -f /boot/initrd.img-*"])
    daemon_verbs.install_daemon(site, node)
    daemon_verbs.release(node)  # it waits for a driver, and would hold the GPUs of whoever changes one by hand
    stage(bench, OLD)
    by_program(bench, OLD)
    for version in (NEW, OLD):
        keep_files(bench, version)
    return bench


def keep_files(bench: Bench, version: str) -> None:
    """Stage a driver, and keep its packages beside for the bare commands: sets come and go."""
    if version != OLD:
        stage(bench, version)
    folder = f"{STAGED}/{bench.identifier(version)}/packages"
    bench.node.run(["sh", "-c", f"mkdir -p /root/{version} && cp {folder}/*.deb /root/{version}"])


def stage(bench: Bench, version: str) -> None:
    """Stage a change, with the built module handed over."""
    if bench.has_dkms:
        kernel = bench.node.kernel_release
        modules.hand_over(bench.node, bench.identifier(version), modules.archive(version, "proprietary", kernel))
    call(bench.node, "stage", given=msgspec.json.encode(bench.change(version)).decode())


def by_program(bench: Bench, version: str) -> Took:
    """Swap with the program, and return what it says it took; staged again first, which costs no service."""
    stage(bench, version)
    if not bench.has_dkms:
        bench.node.install_module(version)
    used = cpu_s(bench.node)
    run = call(bench.node, "swap", bench.identifier(version))["run"]
    took = Took(float(run["out_of_service_s"]), cpu_s(bench.node) - used, os.getloadavg()[0])
    print(f"  grapnel {version}: {took}: {steps_of(bench.node, run['run'])}", flush=True)
    return took


def by_hand(bench: Bench, version: str, *, staged: bool = True) -> Took:
    """Unload, install the same files, load; returns the seconds from the first command to the end of the last."""
    node = bench.node
    if bench.has_dkms:
        archive = modules.archive(version, "proprietary", node.kernel_release)
        place = node.root / "usr/share/nvidia-current-dkms" / archive.name
        place.unlink(missing_ok=True)
        if staged:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(archive.read_bytes())
    else:
        node.install_module(version)
    script = node.root / "root/swap.sh"
    script.write_text(bare_commands(version))
    began, used = time.monotonic(), cpu_s(node)
    node.run(["sh", "-e", "/root/swap.sh"], timeout_s=TIMEOUT_S if staged else COMPILE_TIMEOUT_S)
    took = Took(time.monotonic() - began, cpu_s(node) - used, os.getloadavg()[0])
    loaded = node.run(["cat", "/sys/module/nvidia/version"]).stdout.strip()
    if loaded != version:
        raise RuntimeError(f"{node.name} has {loaded} after the bare commands for {version}")
    print(f"  by hand {version}{'' if staged else ', compiling'}: {took}", flush=True)
    return took


def bare_commands(version: str) -> str:
    """Return what a person types who has everything at hand."""
    apt = "apt-get install --yes --quiet --no-install-recommends --allow-downgrades --allow-change-held-packages"
    unload = " ".join(shlex.quote(name) for name in MODULES)
    return (
        f'for each in {unload}; do if grep -q "^$each " /proc/modules; then rmmod $each; fi; done\n'
        f"DEBIAN_FRONTEND=noninteractive {apt} /root/{version}/*.deb\n"
        "modprobe nvidia; modprobe nvidia_uvm\nnvidia-smi -L\n"
    )


def call(node: Node, *words: str, given: str | None = None) -> dict[str, Any]:
    """Call the program and return its answer; a failure ends the benchmark with its words."""
    done = node.run([PROGRAM, *words], check=False, timeout_s=TIMEOUT_S, input_text=given)
    if done.returncode:
        raise RuntimeError(f"grapnel-driver {words[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout))


def steps_of(node: Node, run: str) -> str:
    """Return the longest steps of a run, from its journal."""
    text = node.run(["cat", f"/var/lib/grapnel/driver/journal/{run}.jsonl"]).stdout
    began: dict[str, float] = {}
    took: dict[str, float] = {}
    for event in map(json.loads, text.splitlines()):
        if event["state"] == "begin":
            began[event["step"]] = event["monotonic_s"]
        elif event["step"] in began:
            took[event["step"]] = event["monotonic_s"] - began[event["step"]]
    return ", ".join(f"{step} {took[step]:.1f}" for step in sorted(took, key=lambda one: -took[one])[:6])


def show(kind: str, pairs: list[Pair], unstaged: Took | None) -> None:
    """Print the program beside the bare commands, and whether its share is within the limits."""
    loads = Spread.of(took.load for one in pairs for took in (one.ours, one.bare))
    print(f"\n{OLD} <-> {NEW}, {UNITS[kind]}: s, min/med/max of {len(pairs)}; load {loads.show(1, 0)}")
    ours, bare = Spread.of(one.ours.wall_s for one in pairs), Spread.of(one.bare.wall_s for one in pairs)
    show_row("out of service, grapnel", ours.show(1))
    show_row("floor: the bare commands", bare.show(1))
    show_ratio("ratio of medians", ours.mid / bare.mid, LIMITS[kind])
    if unstaged is not None:
        show_row("unstaged: the bare commands, compiling", str(unstaged))
        show_ratio("grapnel's median, of unstaged", ours.mid / unstaged.wall_s, LIMIT_OF_UNSTAGED)
    verbs = Spread.of(one.verbs.total_s for one in pairs)
    show_row("release, verify and resume, together", verbs.show(2))
    show_row("floor: three commands that do nothing", Spread.of(one.verbs.nothing_s for one in pairs).show(2))
    show_limit(
        "their median", f"{verbs.mid:.2f} s, at most {LIMIT_OF_VERBS_S:.0f} s", is_kept=verbs.mid <= LIMIT_OF_VERBS_S
    )
    show_row("processor, the three", Spread.of(one.verbs.cpu_s for one in pairs).show(2))
    show_row("processor, grapnel, check included", Spread.of(one.ours.cpu_s for one in pairs).show(1))
    show_row("processor, the bare commands", Spread.of(one.bare.cpu_s for one in pairs).show(1))


def show_row(name: str, value: str) -> None:
    print(f"  {name:42} {value:>21}", flush=True)


def show_ratio(name: str, ratio: float, limit: float) -> None:
    show_limit(name, f"{ratio:.2f}, at most {limit:.2f}", is_kept=ratio <= limit)


def show_limit(name: str, value: str, *, is_kept: bool) -> None:
    show_row(name, f"{value}: {'kept' if is_kept else 'EXCEEDED'}")


if __name__ == "__main__":
    sys.exit(main())
