"""Keys of a kubeconfig are never on a disk, and a program that is killed leaves none behind."""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provision.cluster.kubernetes.api.exchange import Request
from provision.cluster.kubernetes.api.kubeconfig import Kubeconfig, MemoryFiles, by_path
from provision.cluster.kubernetes.api.transport import Transport
from tests import peers

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
GET = Request(method="GET", path="/api", timeout_s=60.0)


class Short(BaseHTTPRequestHandler):
    """Keeps no connection."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, Path]:
    """Return a certificate, its key, and the folder of both."""
    folder = tmp_path_factory.mktemp("pair")
    cert, key = map(Path, peers.certificate(folder, "localhost"))
    return cert.read_bytes(), key.read_bytes(), folder


@pytest.fixture
def server(pair: tuple[bytes, bytes, Path]) -> Iterator[str]:
    """Return the URL of a server that talks to nobody without that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair[2] / "cert.pem", pair[2] / "key.pem")
    context.load_verify_locations(pair[2] / "cert.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with ThreadingHTTPServer(("127.0.0.1", 0), Short) as made:
        made.socket = context.wrap_socket(made.socket, server_side=True)
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield f"https://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def document(url: str, certificate: bytes, user: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": url, "certificate-authority-data": encoded(certificate)}}],
        "users": [{"name": "x", "user": user}],
    }


def from_a_plugin(folder: Path, certificate: bytes, key: bytes) -> dict[str, Any]:
    status = {"clientCertificateData": certificate.decode(), "clientKeyData": key.decode()}
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    path = folder / "plugin.py"
    path.write_text(f"print({json.dumps(credential)!r})")
    command = {"apiVersion": credential["apiVersion"], "command": sys.executable, "args": [str(path)]}
    return {"exec": command}


def in_memory() -> int:
    """Return how many files of this process are in memory, and are of credentials."""
    found = 0
    for path in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # the folder's own, which is closed by now
            found += "memfd:credentials" in str(path.readlink())
    return found


@pytest.mark.parametrize("place", ["the kubeconfig", "a plugin"])
def test_a_key_is_used_for_every_connection_and_is_in_no_folder(
    place: str, server: str, pair: tuple[bytes, bytes, Path], temporary: Path, tmp_path: Path
) -> None:
    certificate, key, _folder = pair
    held = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    user = held if place == "the kubeconfig" else from_a_plugin(tmp_path, certificate, key)
    config = Kubeconfig(context="x", server=server, document=document(server, certificate, user))
    transport = Transport(config)

    assert list(temporary.iterdir()) == []
    assert [transport.send(GET).code for _number in range(3)] == [200, 200, 200]
    assert list(temporary.iterdir()) == []
    assert in_memory() == 3
    del transport
    gc.collect()
    assert in_memory() == 0, "what is in memory goes with who uses it"


def test_a_program_that_is_killed_leaves_no_key(
    server: str, pair: tuple[bytes, bytes, Path], temporary: Path, tmp_path: Path
) -> None:
    certificate, key, _folder = pair
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(document(server, certificate, user)))
    code = (
        "import os, sys, signal, pathlib; from provision.cluster.connect import open_api; "
        "open_api(pathlib.Path(sys.argv[1]), None, {}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environ = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}

    done = subprocess.run([sys.executable, "-P", "-c", code, str(config)], env=environ, check=False)

    assert done.returncode == -signal.SIGKILL
    assert list(temporary.iterdir()) == []


def test_what_stands_in_a_kubeconfig_is_named_wherever_it_stands() -> None:
    given = document("https://x", b"ca", {"client-key-data": encoded(b"key"), "token": "t"})
    given["users"][0]["user"]["auth-provider"] = {
        "name": "oidc",
        "config": {"idp-certificate-authority-data": encoded(b"idp"), "client-id": "c"},
    }
    files = MemoryFiles()

    found = by_path(given, files)

    user, cluster = found["users"][0]["user"], found["clusters"][0]["cluster"]
    assert {**user, "auth-provider": user["auth-provider"]["config"].keys(), "client-key": ""} == {
        "token": "t",
        "client-key": "",
        "auth-provider": {"client-id", "idp-certificate-authority"},
    }
    assert Path(user["client-key"]).read_bytes() == b"key"
    assert Path(cluster["certificate-authority"]).read_bytes() == b"ca"
    assert Path(user["auth-provider"]["config"]["idp-certificate-authority"]).read_bytes() == b"idp"
    assert given["users"][0]["user"]["client-key-data"] == encoded(b"key")
    files.close()
    files.close()


def test_what_names_a_file_is_left_alone() -> None:
    given = document("https://x", b"", {"client-key": "/a/key", "client-key-data": ""})
    files = MemoryFiles()
    assert by_path(given, files)["users"] == given["users"]
    files.close()
