"""An API server over TLS, an extender that follows it, and a scheduler that speaks HTTP to the extender."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lab.apiserver import Server, Store, serving
from plugin.base.log import Logger
from plugin.gpushare.books.model import RESOURCE
from plugin.gpushare.books.objects import parse_pod
from plugin.gpushare.books.report import ANNOTATION, render_report
from plugin.gpushare.connections import Connections
from plugin.gpushare.extender import Extender
from plugin.gpushare.server import PREFIX, extender_server
from tests.plugin.gpushare.documents import CREATED_NS, cards, node_document, pod_document
from tests.plugin.gpushare.kubelet import Kubelet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from lab.cluster.certificates import Certificates
    from plugin.gpushare.books.model import Pod

PATIENCE_S = 20.0


@contextlib.contextmanager
def api_server(certificates: Certificates, store: Store | None = None) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate("apiserver"), certificates.key("apiserver"))
    with serving(store or Store(), tls=context) as server:
        yield server


def write_kubeconfig(path: Path, url: str, made: Certificates) -> str:
    cluster = {"server": url, "certificate-authority": str(made.certificate("ca"))}
    user = {"client-certificate": str(made.certificate("admin")), "client-key": str(made.key("admin"))}
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return str(path)


async def until(is_so: Callable[[], object]) -> None:
    """Wait for something that comes by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.01)


@dataclass
class Scheduler:
    """Speaks to an extender as kube-scheduler does."""

    port: int

    async def ask(self, method: str, path: str, body: object = None, headers: str = "") -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        content = b"" if body is None else json.dumps(body).encode()
        kind = "Content-Type: application/json\r\n" if body is not None else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{kind}{headers}Content-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        answer = await reader.read()
        writer.close()
        line, _, rest = answer.partition(b"\r\n")
        return int(line.split()[1]), rest.partition(b"\r\n\r\n")[2]

    async def filter(self, pod: dict[str, Any], *names: str) -> dict[str, Any]:
        body = {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
        status, answer = await self.ask("POST", f"{PREFIX}/filter", body)
        assert status == 200
        found: dict[str, Any] = json.loads(answer)
        return found

    async def bind(self, pod: dict[str, Any], node: str) -> str:
        """Bind, and return the error."""
        metadata = pod["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        status, answer = await self.ask("POST", f"{PREFIX}/bind", body)
        assert status == 200
        return str(json.loads(answer)["Error"])


@dataclass
class Stage:
    """A cluster with kubelets that admit pods only when they are told to."""

    server: Server
    kubeconfig: str
    kubelets: dict[str, Kubelet] = field(default_factory=dict)
    asked_ns: int = CREATED_NS + 1

    @property
    def store(self) -> Store:
        return self.server.store

    def add_node(self, name: str, *units: int) -> None:
        self.kubelets[name] = Kubelet(cards(*units))
        self.store.put("nodes", node_document(name, self.kubelets[name].report(self.asked_ns)))

    def add_pod(self, name: str, *units: int, node: str = "") -> dict[str, Any]:
        document = pod_document(name, *units, node=node)
        self.store.put("pods", document)
        return document

    def pod(self, name: str) -> dict[str, Any]:
        stored = self.store.get("pods", ("jobs", name))
        assert stored is not None
        return stored.load()

    def parsed(self, name: str) -> Pod:
        found = parse_pod(self.pod(name), RESOURCE)
        assert found is not None
        return found

    def admit(self, *names: str) -> None:
        """Have the kubelets admit pods in this order, and their daemons report it."""
        for name in names:
            pod = self.parsed(name)
            self.kubelets[pod.node].admit(pod)
        self.report()

    def report(self) -> None:
        self.asked_ns += 1_000_000_000
        for name, kubelet in self.kubelets.items():
            written = {ANNOTATION: render_report(kubelet.report(self.asked_ns))}
            self._annotate(name, written)

    def _annotate(self, name: str, written: dict[str, str]) -> None:
        self.store.change("nodes", ("", name), lambda node: node["metadata"]["annotations"].update(written))

    @contextlib.asynccontextmanager
    async def extender(self) -> AsyncIterator[tuple[Extender, Scheduler]]:
        """Run an extender until the end of the block, and let it read the cluster."""
        connections = Connections(self.kubeconfig, {})
        extender = Extender(connections, RESOURCE, Logger())
        server = extender_server(extender, Logger())
        await server.start("127.0.0.1", 0)
        extender.start()
        try:
            await until(lambda: not extender.problem())
            yield extender, Scheduler(server.ports[0])
        finally:
            await server.close()
            await extender.stop()
            self.server.cut()
            connections.close()
