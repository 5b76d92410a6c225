"""What a node with claims asks of an API server, and how soon a GPU that breaks is in its slices.

Two daemons of the same release on nodes of their own, in turn: an XID error until the API server has the taint, beside
the same error until the kubelet's device manager has the list. Then one of them alone: the requests that an API server
counts while nothing happens, and for each thing that happens to a node.

Usage: python bench/daemons/slices.py [--gpus N] [--quiet-seconds S] [--strict]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.daemons.calls import in_rounds
from bench.daemons.claims import driver_on, verdict, wait
from bench.daemons.events import XID, break_gpu
from bench.daemons.subjects import Release, ours, running
from bench.daemons.verdict import percentile_99
from bench.fleets.requests import parse_requests
from bench.stage.api import Client, watching
from bench.starts.machine import machine
from lab.cluster import ControlPlane
from lab.nvml import install, models, state
from plugin.dra.keeper import WATCH_S
from plugin.dra.slices import PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from bench.daemons.claims import Driver
    from bench.stage.api import Watch
    from lab.nvml.machine import Machine

NEXT = "570.86.15"
FLEET = 5000
LEASE_S = 10.0  # how often each kubelet writes that it lives: what a cluster bears anyway
TAINT_LIMIT_S = 2.0
OF_CLAIMS = ("resourceslices", "nodes", "resourceclaims", "resourceclaims/status")
WRITES = ("POST", "PUT", "PATCH", "DELETE")
_GRACE_S = 3600  # no controller writes of a Node meanwhile that its kubelet is silent
_OF_KUBELET = Counter({"DELETE resourceslices": 1})  # when it starts: of all of its node's
_SETTLED_S = 3.0  # without a request, and what happened is over
_FLOOR, _TAINT = "XID error -> list of the device plugin", "XID error -> taint in the API server"


class Counted:
    """The requests about slices and Nodes that an API server has answered; nobody else may ask for them meanwhile."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._api = control_plane.api

    def now(self) -> Counter[str]:
        """Return them since its start."""
        connection = self._api.connection()
        connection.request("GET", "/metrics")
        found = parse_requests(connection.getresponse().read().decode())
        connection.close()
        return Counter({what: count for what, count in found.items() if what.split()[1] in OF_CLAIMS})

    def during(self, work: Callable[[], object]) -> Counter[str]:
        """Return what was asked by and by because of something."""
        before = self.now()
        work()
        after = self.now()
        while True:
            time.sleep(_SETTLED_S)
            if (later := self.now()) == after:
                return after - before
            after = later


def _xid(machine: Machine, index: int) -> Machine:
    return machine.with_xid(index, XID)


def taint(watch: Watch, driver: Driver, index: int) -> float:
    """Return milliseconds from an XID error to the event of the slice that has one tainted device more."""
    mark = watch.mark()
    (uuid,) = (gpu.uuid for gpu in state.read(driver.subject.library).gpus[index : index + 1])
    start = time.monotonic()
    state.update(driver.subject.library, partial(_xid, index=index))

    def is_tainted(body: dict[str, Any]) -> bool:
        rows = body["spec"].get("devices") or ()
        return any(row["name"] == uuid.lower() and row.get("taints") for row in rows)

    seen = watch.wait(f"{uuid} has a taint", lambda each: is_tainted(each.body), mark)
    return (seen.moment - start) * 1000


def health(folder: Path, release: Release, control_plane: ControlPlane, gpus: int) -> bool:
    """Break GPU after GPU of both nodes, in turn; print the figures, and say whether the limit is kept."""
    with ExitStack() as stack:
        plugin = stack.enter_context(running(ours(folder / "plugin", release, gpus)))
        driver = stack.enter_context(driver_on(folder / "driver", release, control_plane, gpus))
        watch = stack.enter_context(watching(control_plane.api, PATH))
        ours_, theirs = iter(range(gpus)), iter(range(gpus))
        measures = {
            _FLOOR: lambda: break_gpu(plugin, next(theirs)),
            _TAINT: lambda: taint(watch, driver, next(ours_)),
        }
        taken = in_rounds(measures, gpus - 1, warm_up=1)
    for name, values in taken.items():
        print(f"{name:48} min {min(values):7.1f}  p50 {median(values):7.1f}  max {max(values):7.1f} ms")
    ratio, slowest = median(taken[_TAINT]) / median(taken[_FLOOR]), percentile_99(taken[_TAINT]) / 1000
    print(f"to the floor, medians: {ratio:.2f}")
    is_kept = slowest <= TAINT_LIMIT_S
    print(f"a taint: slowest at most {TAINT_LIMIT_S:g} s: {slowest:.2f}: {verdict(is_kept=is_kept)}")
    return is_kept


def requests(folder: Path, release: Release, control_plane: ControlPlane, quiet_s: float) -> bool:
    """Print what one node asks for, and what as many as 5,000 would; say whether nothing is written without need."""
    counted = Counted(control_plane)
    before = counted.now()["APPLY nodes"]
    with driver_on(folder / "counted", release, control_plane) as driver:
        wait(lambda: [each for each in (counted.now()["APPLY nodes"],) if each > before])  # the last of its start
        counted.during(lambda: None)
        quiet = counted.during(lambda: time.sleep(quiet_s))
        happened = {
            "a GPU breaks": counted.during(lambda: state.update(driver.subject.library, partial(_xid, index=0))),
            "another driver is loaded": counted.during(lambda: _change_driver(driver)),
            "the daemon is killed and starts": counted.during(lambda: _restart_daemon(driver)),
            "the kubelet starts again": counted.during(lambda: _restart_kubelet(control_plane, driver)) - _OF_KUBELET,
        }
    print(f"\n{'requests of a node':36} {'in all':>14} {'writes':>7}")
    for what, found in {f"nothing, {quiet_s:g} s long": quiet, **happened}.items():
        told = ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
        print(f"{what:36} {_total(found):>14} {_writes(found):>7}   {told}".rstrip())
    _reckon(happened)
    is_kept = not quiet
    print(f"while nothing happens nothing is asked, watches aside: {verdict(is_kept=is_kept)}")
    return is_kept


def _reckon(happened: dict[str, Counter[str]]) -> None:
    """Print what follows for many nodes."""
    leases = FLEET / LEASE_S
    quiet = FLEET * 2 / (WATCH_S * 1.25)  # a watch ends after that on average: it is begun again, after a list
    print(f"{FLEET} nodes, nothing happens: {quiet:.1f} requests/s, {quiet / leases:.1%} of their kubelets' leases")
    daily = FLEET * _total(happened["a GPU breaks"]) / 86400
    print(f"{FLEET} nodes, on each a GPU a day changes its health: {daily:.2f} requests/s more")
    for what in ("another driver is loaded", "the kubelet starts again"):
        print(
            f"{FLEET} nodes, {what} on all within an hour: {FLEET * _total(happened[what]) / 3600:.1f} requests/s more"
        )


def _total(found: Counter[str]) -> int:
    return sum(found.values())


def _writes(found: Counter[str]) -> int:
    return sum(count for what, count in found.items() if what.split()[0] in WRITES)


def _change_driver(driver: Driver) -> None:
    """Have the daemon let go of the driver, exchange it, and have it offered again, as an upgrade does."""
    _verb(driver, "release")
    install(driver.subject.library.parent, NEXT, models.machine("a100-40gb", len(driver.devices)))
    _verb(driver, "resume")


def _verb(driver: Driver, verb: str) -> None:
    interpreter = driver.subject.command[: driver.subject.command.index("run")]
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(driver.subject.library.parent)}
    words = [*interpreter, verb, "--json", "--timeout", "60", "--config", str(driver.config)]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if not done.stdout.startswith(b"{"):  # its exit status is also about others who have GPUs of this machine
        raise SystemExit(f"grapnel-node {verb} ended with {done.returncode}")


def _restart_daemon(driver: Driver) -> None:
    driver.kill()
    driver.start()


def _restart_kubelet(control_plane: ControlPlane, driver: Driver) -> None:
    """Leave, and come as a kubelet that starts: it deletes the slices of its node, and then takes the driver."""
    driver.hang_up()
    with closing(Client(control_plane.api)) as kubelet:
        kubelet.call("DELETE", PATH)
    driver.connect()
    driver.take()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=16, help="of a node; each breaks once, the first is not counted")
    parser.add_argument("--quiet-seconds", type=float, default=60.0)
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a limit is exceeded")
    options = parser.parse_args(arguments)
    print(f"{machine(sys.executable)}, load {os.getloadavg()[0]:.1f}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="grapnel-bench-") as name,
        ControlPlane(Path(name, "control-plane"), node_grace_s=_GRACE_S).running() as control_plane,
    ):
        folder = Path(name)
        release = Release(folder / "release")
        is_soon = health(folder, release, control_plane, options.gpus)
        is_quiet = requests(folder, release, control_plane, options.quiet_seconds)
    return 1 if options.strict and not (is_soon and is_quiet) else 0


if __name__ == "__main__":
    sys.exit(main())
