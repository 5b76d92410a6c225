"""What a claim costs beside an allocation: preparing one over the kubelet's socket, with a real API server behind it.

Two daemons of the same release on nodes of their own are asked in turn: one as a device plugin (Allocate), one as a
driver of claims (NodePrepareResources: the claim is read from the API, the kubelet is asked who has GPUs, and a record
is on the disk).

Usage: python bench/daemons/claims.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.daemons.calls import in_rounds, timed
from bench.daemons.process import memory_of
from bench.daemons.subjects import Release, Subject, ours, running
from bench.daemons.verdict import percentile_99
from lab.cluster import ControlPlane
from lab.kubelet import Kubelet
from lab.kubelet.claims import DraKubelet, create_allocated, published
from tests.plugin.node_object.real_cluster import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

GPUS = 8
NODE = "claims"
LIMIT_MS = 50.0  # what a pod's start may wait for a claim, 99 times of 100
LIMIT_MIB = 8.0  # what a daemon may have more than one that is a device plugin
_READY_S = 30.0


class Driver(DraKubelet):
    """A daemon that gives GPUs to claims, and the kubelet that has taken it; `allocate` first, then prepare."""

    def __init__(self, control_plane: ControlPlane, subject: Subject, config: Path) -> None:
        super().__init__(subject.kubelet_root)
        self.subject, self.config = subject, config
        self._control_plane = control_plane
        self.uids: list[str] = []
        self.start()
        self.devices = wait(
            lambda: [row["name"] for each in published(control_plane, NODE) for row in each["spec"]["devices"]]
        )

    def start(self) -> None:
        """Start a daemon, and take it."""
        before = set(self.sockets)
        self.process = self.subject.start()
        wait(lambda: [each for each in self.sockets if each not in before] if len(self.sockets) == 1 else [])
        self.hang_up()
        self.connect()
        self.take()

    def kill(self) -> None:
        """End the daemon at once."""
        self.process.kill()
        self.process.wait()

    def allocate(self) -> None:
        """Make a claim for each device, as the scheduler leaves it."""
        self.uids = [
            create_allocated(self._control_plane, NODE, f"claim-{number}", [device])
            for number, device in enumerate(self.devices)
        ]

    def prepare_one(self, number: int) -> None:
        """Have a claim prepared; it must not be prepared already."""
        error = self.prepare(f"claim-{number}", self.uids[number]).error
        if error:
            raise SystemExit(error)

    def unprepare_one(self, number: int) -> None:
        """Give a claim back."""
        self.unprepare(f"claim-{number}", self.uids[number])


def wait(look: Callable[[], list[Any]]) -> list[Any]:
    """Return what is found as soon as there is something."""
    deadline = time.monotonic() + _READY_S
    while not (found := look()):
        if time.monotonic() > deadline:
            raise SystemExit("the daemon has published nothing")
        time.sleep(0.05)
    return found


def measure(folder: Path, rounds: int) -> bool:
    """Print the figures, and say whether both limits are kept."""
    with ExitStack() as stack:
        control_plane = stack.enter_context(ControlPlane(folder / "control-plane").running())
        release = Release(folder / "release")
        plugin = stack.enter_context(running(ours(folder / "plugin", release, GPUS)))
        driver = stack.enter_context(driver_on(folder / "driver", release, control_plane))
        driver.allocate()
        pid = driver.process.pid
        numbers = iter(range(10**9))

        def prepare() -> float:
            number = next(numbers) % GPUS
            taken = timed(lambda: driver.prepare_one(number))()
            driver.unprepare_one(number)
            return taken

        allocate = timed(lambda: plugin.endpoint.allocate(plugin.ids[:1]))
        taken = in_rounds({"Allocate": allocate, "NodePrepareResources": prepare}, rounds)
        for name, values in taken.items():
            print(f"{name:24} p50 {median(values):7.2f} ms  p99 {percentile_99(values):7.2f} ms")
        more = memory_of(pid).pss - memory_of(plugin.pid).pss
        print(f"memory of the daemon     {memory_of(plugin.pid)} as a device plugin, {memory_of(pid)} with claims")
        p99 = percentile_99(taken["NodePrepareResources"])
        print(f"a claim: p99 at most {LIMIT_MS:g} ms: {verdict(is_kept=p99 <= LIMIT_MS)}")
        print(f"memory: at most {LIMIT_MIB:g} MiB more: {more:.1f}: {verdict(is_kept=more <= LIMIT_MIB)}")
        return p99 <= LIMIT_MS and more <= LIMIT_MIB


def verdict(*, is_kept: bool) -> str:
    """Say it."""
    return "kept" if is_kept else "EXCEEDED"


@contextmanager
def driver_on(folder: Path, release: Release, control_plane: ControlPlane, gpus: int = GPUS) -> Iterator[Driver]:
    """Start a daemon that gives GPUs to claims, on a node of its own; end it."""
    register(control_plane, NODE)
    subject = ours(folder, release, gpus)
    kubeconfig, path = folder / "kubelet.conf", folder / "node.json"
    kubeconfig.write_text(control_plane.render_kubeconfig(control_plane.certificates.prepare_node(NODE)))
    claims = {"interface": "dra", "kubernetesApi": str(kubeconfig), "nodeName": NODE, "cdiFolder": str(folder / "cdi")}
    path.write_text(json.dumps({**json.loads(path.read_text()), **claims}))
    with Kubelet(subject.kubelet_root, has_pod_resources=True):
        driver = Driver(control_plane, subject, path)
        try:
            yield driver
        finally:
            driver.hang_up()
            driver.kill()
            control_plane.kubectl(["delete", "resourceslices", "--all"])
            control_plane.kubectl(["delete", "node", NODE])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a limit is exceeded")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
        is_within = measure(Path(folder), options.rounds)
    return 1 if options.strict and not is_within else 0


if __name__ == "__main__":
    sys.exit(main())
