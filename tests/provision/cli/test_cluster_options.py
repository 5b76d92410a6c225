"""Which cluster is meant."""

from __future__ import annotations

import argparse
import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from provision.base.errors import UsageError
from provision.cli.parsers.options import cluster_arguments
from provision.cli.session.scope import open_scope
from provision.cli.session.work import claim_of
from provision.cluster import LocalCluster, Machine
from provision.cluster.errors import KubeconfigError
from provision.declaration.fleet.endpoint import Endpoint
from provision.declaration.fleet.model import Fleet, FleetNode
from provision.declaration.spec.model import GpuStack
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STACK = make_stack()
FLEET = Fleet(
    declaration=GpuStack(api_version="grapnel.dev/v1alpha1", kind="GpuStack", spec=STACK),
    nodes=(FleetNode("n1", (), STACK, {}, Endpoint("10.0.0.1")),),
    inventories=("/srv/inventory",),
)
STACKS = {node.name: node.stack for node in FLEET.nodes}

LOCAL = Endpoint("n2", kind="local")


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cluster_arguments(parser)
    return parser.parse_args(list(words))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KUBECONFIG", "XDG_STATE_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("words", [[], ["--no-cluster"]], ids=["no kubeconfig anywhere", "asked for"])
def test_without_a_cluster_there_is_a_state_file(words: list[str], home: Path) -> None:
    scope = open_scope(arguments(*words), FLEET, STACKS)
    assert isinstance(scope.cluster, LocalCluster)
    assert scope.cluster.name.startswith(f"state file {home}/.local/state/grapnel/node-state-")
    assert scope.stacks == {"n1": STACK}
    assert scope.cluster.has_runtime_class("nvidia", "nvidia"), "nobody would read it"


def test_a_kubeconfig_that_is_in_the_way_is_left_alone(home: Path) -> None:
    (home / ".kube").mkdir()
    (home / ".kube" / "config").write_text("not a kubeconfig")
    with pytest.raises(KubeconfigError):
        open_scope(arguments(), FLEET, STACKS)
    assert isinstance(open_scope(arguments("--no-cluster"), FLEET, STACKS).cluster, LocalCluster)


@pytest.mark.parametrize("words", [["--kubeconfig", "k"], ["--context", "c"]])
def test_no_cluster_and_a_cluster_cannot_be_meant(words: list[str]) -> None:
    with pytest.raises(UsageError, match="cannot be combined with"):
        open_scope(arguments("--no-cluster", *words), FLEET, STACKS)


class ApiServer(BaseHTTPRequestHandler):
    """Answers as an API server does that is only greeted."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Stay silent."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        config = {
            "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x"}}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        yield path
        server.shutdown()


def test_a_cluster_is_told_where_its_machines_are_reached(kubeconfig: Path) -> None:
    there = Machine(addresses=frozenset({"10.0.0.1"}))
    assert open_scope(arguments("--kubeconfig", str(kubeconfig)), FLEET, STACKS).machines == {"n1": there}


def test_an_apply_claims_each_machine_by_every_spelling_of_it() -> None:
    nodes = (FleetNode("n1", (), STACK, {}, Endpoint("gpu-1", 2222)), FleetNode("n2", (), STACK, {}, LOCAL))
    claim = claim_of(replace(FLEET, nodes=nodes), {"n1": frozenset({"10.0.0.1", "fd00::1"}), "n2": frozenset()})

    assert claim.inventory == "/srv/inventory"
    assert claim.machines == {"n1": ("gpu-1:2222", "10.0.0.1:2222", "fd00::1:2222"), "n2": ("local",)}
