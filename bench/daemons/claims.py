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
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import grpc

from bench.daemons.calls import in_rounds, timed
from bench.daemons.process import memory_of
from bench.daemons.subjects import Release, ours, running
from bench.daemons.verdict import percentile_99
from lab.cluster import ControlPlane
from lab.kubelet import Kubelet
from lab.kubelet.proto.dra.v1 import api_pb2
from lab.kubelet.proto.pluginregistration.v1 import api_pb2 as registration_pb2
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

GPUS = 8
NODE, DRIVER = "claims", "gpu.nvidia.com"
LIMIT_MS = 50.0  # what a pod's start may wait for a claim, 99 times of 100
LIMIT_MIB = 8.0  # what a daemon may have more than one that is a device plugin
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
_READY_S = 30.0


class Driver:
    """A daemon that gives GPUs to claims: what the kubelet asks of it."""

    def __init__(self, control_plane: ControlPlane, root: Path) -> None:
        self._control_plane = control_plane
        (path,) = _wait(lambda: list((root / "plugins_registry").glob("*.sock")))
        with closing(SocketAddress(path.parent, path.name)) as address:
            self._channel = grpc.insecure_channel(address.target, options=_OPTIONS)
            grpc.channel_ready_future(self._channel).result(timeout=_READY_S)
        status = registration_pb2.RegistrationStatus(plugin_registered=True)
        answer = registration_pb2.RegistrationStatusResponse
        self._call("/pluginregistration.Registration/NotifyRegistrationStatus", status, answer)
        self.devices = _wait(self._published)
        self.uids = [self._claim(number, device) for number, device in enumerate(self.devices)]

    def _published(self) -> list[str]:
        found = json.loads(self._control_plane.kubectl(["get", "resourceslices", "-o", "json"]))["items"]
        return [row["name"] for each in found for row in each["spec"]["devices"]]

    def _claim(self, number: int, device: str) -> str:
        """Make a pod of the node with a claim, as the scheduler leaves it."""
        name = f"claim-{number}"
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": NODE,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            },
        }
        create = ["create", "-f", "-", "-o", "json"]
        made = json.loads(self._control_plane.kubectl(create, input_text=json.dumps(claim)))
        self._control_plane.kubectl(create, input_text=json.dumps(pod))
        results = [{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}]
        status = json.dumps({"status": {"allocation": {"devices": {"results": results}}}})
        patch = ["patch", "resourceclaim", name, "--subresource=status", "--type=merge", "-p", status]
        self._control_plane.kubectl(patch)
        return str(made["metadata"]["uid"])

    def prepare(self, number: int) -> None:
        """Have a claim prepared; it must not be prepared already."""
        service = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
        asked = api_pb2.NodePrepareResourcesRequest(claims=[self._named(number)])
        answer = self._call(service, asked, api_pb2.NodePrepareResourcesResponse)
        error = answer.claims[self.uids[number]].error
        if error:
            raise SystemExit(error)

    def unprepare(self, number: int) -> None:
        """Give a claim back."""
        service = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"
        asked = api_pb2.NodeUnprepareResourcesRequest(claims=[self._named(number)])
        self._call(service, asked, api_pb2.NodeUnprepareResourcesResponse)

    def _named(self, number: int) -> api_pb2.Claim:
        return api_pb2.Claim(namespace="default", name=f"claim-{number}", uid=self.uids[number])

    def _call(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
        )
        return call(request, timeout=_READY_S)


def _wait(look: Callable[[], list[Any]]) -> list[Any]:
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
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        control_plane.kubectl(["create", "-f", "-"], input_text=json.dumps(node))
        release = Release(folder / "release")
        plugin = stack.enter_context(running(ours(folder / "plugin", release, GPUS)))
        driver, pid = stack.enter_context(_driver(folder / "driver", release, control_plane))
        numbers = iter(range(10**9))

        def prepare() -> float:
            number = next(numbers) % GPUS
            taken = timed(lambda: driver.prepare(number))()
            driver.unprepare(number)
            return taken

        allocate = timed(lambda: plugin.endpoint.allocate(plugin.ids[:1]))
        taken = in_rounds({"Allocate": allocate, "NodePrepareResources": prepare}, rounds)
        for name, values in taken.items():
            print(f"{name:24} p50 {median(values):7.2f} ms  p99 {percentile_99(values):7.2f} ms")
        more = memory_of(pid).pss - memory_of(plugin.pid).pss
        print(f"memory of the daemon     {memory_of(plugin.pid)} as a device plugin, {memory_of(pid)} with claims")
        p99 = percentile_99(taken["NodePrepareResources"])
        print(f"a claim: p99 at most {LIMIT_MS:g} ms: {_verdict(is_kept=p99 <= LIMIT_MS)}")
        print(f"memory: at most {LIMIT_MIB:g} MiB more: {more:.1f}: {_verdict(is_kept=more <= LIMIT_MIB)}")
        return p99 <= LIMIT_MS and more <= LIMIT_MIB


def _verdict(*, is_kept: bool) -> str:
    return "kept" if is_kept else "EXCEEDED"


@contextmanager
def _driver(folder: Path, release: Release, control_plane: ControlPlane) -> Iterator[tuple[Driver, int]]:
    """Start a daemon that gives GPUs to claims; end it."""
    subject = ours(folder, release, GPUS)
    kubeconfig = folder / "kubelet.conf"
    kubeconfig.write_text(control_plane.render_kubeconfig(control_plane.certificates.prepare_node(NODE)))
    config = json.loads((folder / "node.json").read_text())
    claims = {"interface": "dra", "kubernetesApi": str(kubeconfig), "nodeName": NODE, "cdiFolder": str(folder / "cdi")}
    (folder / "node.json").write_text(json.dumps({**config, **claims}))
    (subject.kubelet_root / "plugins_registry").mkdir()
    with Kubelet(subject.kubelet_root, has_pod_resources=True):
        process = subject.start()
        try:
            yield Driver(control_plane, subject.kubelet_root), process.pid
        finally:
            process.terminate()
            process.wait()


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
