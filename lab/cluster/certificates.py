"""Creates the keys and certificates of a cluster with openssl (EC P-256), in one folder that only root may read."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.machine.command import run
from lab.machine.folders import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SERVICE_ADDRESS = "10.96.0.1"  # the API server's address inside the service network
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
ADMIN = "admin"
CONTROLLER_MANAGER = "controller-manager"
SCHEDULER = "scheduler"
API_SERVER = "apiserver"
API_SERVER_TO_KUBELET = "apiserver-kubelet"
CLIENTS = {
    ADMIN: "/O=system:masters/CN=admin",
    CONTROLLER_MANAGER: "/CN=system:kube-controller-manager",
    SCHEDULER: "/CN=system:kube-scheduler",
    API_SERVER_TO_KUBELET: "/O=system:masters/CN=kube-apiserver",
}
CONFIG = "[req]\ndistinguished_name = dn\nprompt = no\n[dn]\n"  # instead of the machine's own openssl.cnf
DAYS = "3650"
TIMEOUT_S = 30.0
CLIENT_AUTH = "extendedKeyUsage=clientAuth"


@dataclass(frozen=True)
class Certificates:
    """The folder of a cluster's keys and certificates; each name has ``NAME.crt`` and ``NAME.key`` there."""

    folder: Path

    def certificate(self, name: str) -> Path:
        """Return the path of the certificate; ``ca`` is the authority's own."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Return the path of the private key; ``service-accounts`` is the one that signs tokens."""
        return self.folder / f"{name}.key"

    @property
    def service_accounts(self) -> Path:
        """The public half of the key that signs service account tokens."""
        return self.folder / "service-accounts.pub"

    def prepare(self, address: str) -> None:
        """Create everything that a control plane at ``address`` needs, all of it or nothing, unless it exists."""
        if self.folder.exists():
            return
        partial = Certificates(self.folder.with_name(f".{self.folder.name}.partial"))
        shutil.rmtree(partial.folder, ignore_errors=True)
        partial.folder.mkdir(parents=True, mode=0o700)
        partial._make_authority()
        names = [f"DNS:{name}" for name in SERVER_NAMES]
        addresses = [f"IP:{ip}" for ip in dict.fromkeys((address, "127.0.0.1", SERVICE_ADDRESS))]
        server = (f"subjectAltName={','.join([*names, *addresses])}", "extendedKeyUsage=serverAuth")
        partial._sign(API_SERVER, "/CN=kube-apiserver", server)
        for name, subject in CLIENTS.items():
            partial._sign(name, subject, (CLIENT_AUTH,))
        partial.folder.rename(self.folder)

    def prepare_node(self, node: str) -> str:
        """Create a kubelet's client certificate unless it exists; return its name in this folder."""
        name = f"node-{node}"
        if not self.certificate(name).exists():
            self._sign(name, f"/O=system:nodes/CN=system:node:{node}", (CLIENT_AUTH,))
        return name

    def _make_authority(self) -> None:
        write_atomic(self.folder / "openssl.cnf", CONFIG)
        self._request("ca", "/CN=grapnel-lab", ("basicConstraints=critical,CA:TRUE", "keyUsage=keyCertSign"))
        key = str(self.key("service-accounts"))
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
        _openssl("pkey", "-in", key, "-pubout", "-out", str(self.service_accounts))

    def _sign(self, name: str, subject: str, extensions: Sequence[str]) -> None:
        authority = ("-CA", str(self.certificate("ca")), "-CAkey", str(self.key("ca")))
        self._request(name, subject, ("basicConstraints=critical,CA:FALSE", *extensions), authority)

    def _request(self, name: str, subject: str, extensions: Sequence[str], options: Sequence[str] = ()) -> None:
        """Create a key and its certificate; the certificate last, so that a killed command leaves none."""
        partial = self.certificate(name).with_suffix(".partial")
        added = [word for extension in extensions for word in ("-addext", extension)]
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(self.key(name)))
        config = ("-config", str(self.folder / "openssl.cnf"), "-subj", subject, "-days", DAYS)
        _openssl("req", "-x509", *kind, *config, *added, *options, "-out", str(partial))
        partial.rename(self.certificate(name))


def _openssl(*arguments: str) -> None:
    run(["openssl", *arguments], timeout_s=TIMEOUT_S)
