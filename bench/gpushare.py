"""Measures the gpushare extender: one filter over 1,000 nodes, and binds of 50 pods at a time.

The API server is the lab's, in a process of its own, over TLS; a bind there costs what the row "API server alone" says,
which no extender can be faster than. kube-scheduler decides one pod after another, 200 a second where it is quick, so
that 50 pods that are created at once come as in the row "a pod each 5 ms"; all at the same moment is the worst case.
Run: python3 bench/gpushare.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab.cluster.certificates import Certificates
from plugin.base.log import Logger
from plugin.gpushare import requests
from plugin.gpushare.books.model import RESOURCE, Card, Report
from plugin.gpushare.books.objects import parse_pod
from plugin.gpushare.books.pod_annotations import INDEX, assumed
from plugin.gpushare.books.report import ANNOTATION, render_report
from plugin.gpushare.connections import Connections
from plugin.gpushare.extender import Extender
from plugin.gpushare.server import PREFIX, extender_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from multiprocessing.connection import Connection

NODES, CARDS, UNITS, PODS = 1000, 8, 80, 50
FILTER_MS, BIND_MS = 50.0, 20.0


def node(number: int) -> dict[str, Any]:
    """Return a Node with eight cards of 80 GiB."""
    cards = tuple(Card(f"GPU-{number:05}-{index}", index, UNITS) for index in range(CARDS))
    annotations = {ANNOTATION: render_report(Report(RESOURCE, 1 << 30, cards, 1))}
    return {
        "metadata": {"name": f"gpu{number:05}", "annotations": annotations},
        "status": {"allocatable": {RESOURCE: str(CARDS * UNITS)}},
    }


def pod(number: int, where: str = "") -> dict[str, Any]:
    """Return a pod that asks for some units."""
    resources = {"limits": {RESOURCE: str(2 + number % 9)}, "requests": {RESOURCE: str(2 + number % 9)}}
    name = f"p{number}"
    metadata = {
        "name": name,
        "namespace": "jobs",
        "uid": f"uid-{name}",
        "creationTimestamp": "2026-05-04T12:00:00Z",
        "annotations": {INDEX: str(number % CARDS)} if where else {},
    }
    spec = {"containers": [{"name": "main", "resources": resources}], **({"nodeName": where} if where else {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def serve(folder: str, pods: int, ready: Connection) -> None:
    """Be an API server with these nodes and so many pods that wait; three more are on each node."""
    import ssl  # noqa: PLC0415 - of this process alone

    from lab.apiserver import Store, serving  # noqa: PLC0415 - the same

    made, store = Certificates(Path(folder)), Store()
    for number in range(NODES):
        store.put("nodes", node(number))
        for index in range(3):
            store.put("pods", pod(1_000_000 + 3 * number + index, f"gpu{number:05}"))
    for number in range(pods):
        store.put("pods", pod(number))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate("apiserver"), made.key("apiserver"))
    with serving(store, tls=context) as server:
        ready.send(server.url)
        ready.recv()


def kubeconfig(folder: Path, made: Certificates, url: str) -> str:
    """Write a kubeconfig; return its path."""
    user = {"client-certificate": str(made.certificate("admin")), "client-key": str(made.key("admin"))}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": str(made.certificate("ca"))}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


async def ask(port: int, verb: str, body: object) -> dict[str, Any]:
    """Ask the extender as kube-scheduler does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    head = f"POST {PREFIX}/{verb} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    answer = await reader.read()
    writer.close()
    found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


async def timed(call: Awaitable[Any]) -> float:
    """Return how many milliseconds a call takes."""
    start = time.perf_counter()
    await call
    return (time.perf_counter() - start) * 1e3


def row(title: str, taken: Sequence[float], limit: float | None = None) -> None:
    """Print the median and the 99th percentile."""
    p99 = quantiles(taken, n=100)[98] if len(taken) > 1 else taken[0]
    words = "" if limit is None else f"; limit {limit:g} ms: {'kept' if p99 <= limit else 'EXCEEDED'}"
    print(f"{title:58} p50 {median(taken):7.2f} ms  p99 {p99:7.2f} ms{words}", flush=True)


async def filters(port: int, rounds: int) -> None:
    """Measure one filter over all nodes, first with books that were not looked at before."""
    names = [f"gpu{number:05}" for number in range(NODES)]
    body = {"Pod": pod(0), "Nodes": None, "NodeNames": names}
    row(f"filter, {NODES} nodes, the first one", [await timed(ask(port, "filter", body))])
    row(f"filter, {NODES} nodes", [await timed(ask(port, "filter", body)) for _ in range(rounds)], FILTER_MS)


async def binds(bind: Callable[[int], Awaitable[Any]], rounds: int, gap_s: float) -> list[float]:
    """Return the times of binds: rounds of 50 pods, each `gap_s` after the one before, however long that takes."""
    taken: list[float] = []
    for turn in range(rounds):
        calls = []
        for number in range(turn * PODS, (turn + 1) * PODS):
            calls.append(asyncio.ensure_future(timed(bind(number))))
            if gap_s:
                await asyncio.sleep(gap_s)
        taken += await asyncio.gather(*calls)
    return taken


async def measure(source: str, rounds: int) -> None:
    """Measure an extender that serves in this process."""
    connections = Connections(source, {})
    extender = Extender(connections, RESOURCE, Logger())
    server = extender_server(extender, Logger())
    await server.start("127.0.0.1", 0)
    port = server.ports[0]
    start = time.perf_counter()
    extender.start()
    while extender.problem():  # noqa: ASYNC110 - it follows two threads
        await asyncio.sleep(0.01)
    print(f"the cluster read after {time.perf_counter() - start:.2f} s: {NODES} nodes, {3 * NODES} pods on them")
    await filters(port, rounds)
    count = rounds * PODS

    async def alone(number: int) -> None:
        parsed = parse_pod(pod(number), RESOURCE)
        if parsed is not None:
            request = requests.bind(parsed, "elsewhere", assumed(parsed, Card("GPU", 0, UNITS), 1))
            await extender._call(request)

    async def through(number: int) -> None:
        metadata = pod(number)["metadata"]
        sent = {"PodName": metadata["name"], "PodNamespace": "jobs", "PodUID": metadata["uid"]}
        answer = await ask(port, "bind", {**sent, "Node": f"gpu{number % NODES:05}"})
        if answer["Error"]:
            raise RuntimeError(answer["Error"])

    async def later(number: int) -> None:
        await through(number + count)

    row("API server alone, one at a time", [await timed(alone(2 * count + number)) for number in range(PODS)])
    await binds(lambda number: alone(2 * count + PODS + number), 1, 0.0)  # connections are opened
    row("API server alone, 50 at once", await binds(lambda number: alone(2 * count + 2 * PODS + number), 1, 0.0))
    row("bind, a pod each 5 ms", await binds(through, rounds, 0.005), BIND_MS)
    start_ns = time.process_time_ns()
    row("bind, 50 at the same moment", await binds(later, rounds, 0.0))
    cpu_ms = (time.process_time_ns() - start_ns) / 1e6 / count
    print(f"CPU of each of these, the scheduler's side included: {cpu_ms:.2f} ms")
    await server.close()
    await extender.stop()
    connections.close()


def main(argv: Sequence[str] | None = None) -> None:
    """Print a row for each kind of call."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args(argv).rounds
    with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as name:
        made = Certificates(Path(name, "pki"))
        made.prepare("127.0.0.1")
        here, there = multiprocessing.Pipe()
        pods = 2 * rounds * PODS + 3 * PODS
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(str(made.folder), pods, there))
        process.start()
        try:
            asyncio.run(measure(kubeconfig(Path(name), made, here.recv()), rounds))
            here.send(None)
        finally:
            process.join(10)
            process.kill()


if __name__ == "__main__":
    main()
