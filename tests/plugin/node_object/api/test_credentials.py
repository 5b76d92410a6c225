"""Kubeconfigs and service accounts: what is taken, what is refused by name, and that nothing of it is ever said."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from plugin.base.errors import ClusterError
from plugin.publication.node_object.api.access import Access, Secret, in_cluster_access, parse_kubeconfig
from plugin.publication.node_object.api.credentials import Credentials
from tests.plugin.node_object.api_server import TOKEN, write_kubeconfig

if TYPE_CHECKING:
    from lab.cluster.certificates import Certificates
    from tests.plugin.node_object.api_server import ApiServer

ORIGIN = Path("/etc/kubernetes/kubelet.conf")
SECRET = "do-not-show-me"  # noqa: S105 - looked for in messages


def config(user: dict[str, Any] | None = None, **cluster: object) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443", **cluster}}],
        "users": [{"name": "other", "user": None}, {"name": "u", "user": {"token": SECRET} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def test_a_kubelets_kubeconfig_is_read_with_paths_beside_it() -> None:
    user = {"client-certificate": "/var/lib/kubelet/pki/kubelet-client-current.pem", "client-key": "pki/key.pem"}
    assert parse_kubeconfig(config(user, **{"certificate-authority": "ca.crt"}), ORIGIN) == Access(
        "api.example",
        6443,
        authority=Secret(path=Path("/etc/kubernetes/ca.crt")),
        certificate=Secret(path=Path("/var/lib/kubelet/pki/kubelet-client-current.pem")),
        key=Secret(path=Path("/etc/kubernetes/pki/key.pem")),
    )


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param("https://api.example", ("api.example", 443, ""), id="the port of https"),
        pytest.param("https://[fd00::1]:6443", ("fd00::1", 6443, ""), id="IPv6"),
        pytest.param(
            "https://rancher.example/k8s/clusters/c-1/", ("rancher.example", 443, "/k8s/clusters/c-1"), id="a path"
        ),
    ],
)
def test_servers(server: str, expected: tuple[str, int, str]) -> None:
    found = parse_kubeconfig(config(server=server), ORIGIN)
    assert (found.host, found.port, found.base_path) == expected


BAD = [
    pytest.param(config({"exec": {"command": "aws"}}), 'user has "exec"', id="a program for credentials"),
    pytest.param(config({"auth-provider": {"name": "gcp"}}), 'user has "auth-provider"', id="a provider"),
    pytest.param(config({"username": "ada", "password": SECRET}), 'user has "username"', id="a password"),
    pytest.param(config({"token": SECRET, "as": "root"}), 'user has "as"', id="somebody else's name"),
    pytest.param(
        config(**{"insecure-skip-tls-verify": True}), "insecure-skip-tls-verify", id="anybody may be the server"
    ),
    pytest.param(config({}), "no certificate and no token", id="nothing to be known by"),
    pytest.param(config({"client-certificate": "a"}), "must both be there", id="a certificate without a key"),
    pytest.param(config({"client-certificate-data": "?!", "client-key": SECRET}), "not base64", id="invalid data"),
    pytest.param(config({"token": 7}), "token must be a text", id="a number for a token"),
    pytest.param(config(server="http://api.example"), "server must be https", id="no encryption"),
    pytest.param(config(server="https://ada:pw@api.example"), "server must be https", id="a user in the address"),
    pytest.param(config(server="https://api.example:port"), "server is not an address", id="an invalid port"),
    pytest.param(config(server=None), "server must be https", id="no server"),
    pytest.param({**config(), "current-context": "y"}, 'there is no context "y"', id="no such context"),
    pytest.param({**config(), "current-context": None}, "no context without a name", id="no context at all"),
    pytest.param({**config(), "users": None}, 'there is no user "u"', id="no users"),
    pytest.param(
        {**config(), "clusters": [3, {"name": "c", "cluster": "d"}]}, "clusters", id="a cluster that is a text"
    ),
    pytest.param([], "must be a mapping", id="a list"),
    pytest.param(None, "must be a mapping", id="nothing"),
]


@pytest.mark.parametrize(("document", "words"), BAD)
def test_what_cannot_be_used_is_refused_by_name(document: object, words: str) -> None:
    with pytest.raises(ClusterError, match=words) as raised:
        parse_kubeconfig(document, ORIGIN)
    assert str(ORIGIN) in raised.value.message
    assert raised.value.hint
    assert SECRET not in raised.value.message + raised.value.hint


def test_secrets_are_in_no_representation() -> None:
    shown = repr(parse_kubeconfig(config(**{"proxy-url": f"http://a:{SECRET}@p"}), ORIGIN))
    assert SECRET not in shown
    assert base64.b64encode(SECRET.encode()).decode() not in shown


@pytest.mark.slow
def test_yaml_is_read_and_one_that_is_none_is_not_quoted(
    tmp_path: Path, certificates: Certificates, server: ApiServer
) -> None:
    path = write_kubeconfig(tmp_path / "config", server)
    path.write_text(yaml.safe_dump(json.loads(path.read_text())))
    assert Credentials(str(path), {}).current().access.host == "127.0.0.1"
    path.write_text(f"users:\n  - user: {{token: {SECRET}\n    x: [{SECRET}\n")
    with pytest.raises(ClusterError, match=r"not valid yaml \(line 3\)") as raised:
        Credentials(str(path), {}).current()
    assert SECRET not in str(raised.value) + raised.value.hint
    assert raised.value.__cause__ is None
    assert certificates.certificate("ca").exists()


def test_files_that_are_exchanged_are_read_again_and_others_are_not(tmp_path: Path, server: ApiServer) -> None:
    made = server.certificates
    pem = tmp_path / "current.pem"
    pem.write_bytes(made.certificate("admin").read_bytes() + made.key("admin").read_bytes())
    user = {"client-certificate": str(pem), "client-key": str(pem)}
    credentials = Credentials(str(write_kubeconfig(tmp_path / "config", server, user)), {})
    first = credentials.current().context
    assert credentials.current().context is first
    other = tmp_path / "new.pem"
    other.write_bytes(made.certificate("scheduler").read_bytes() + made.key("scheduler").read_bytes())
    other.rename(pem)
    second = credentials.current().context
    assert second is not first
    credentials.forget()
    assert credentials.current().context is not second


def test_a_token_is_read_each_time(tmp_path: Path, server: ApiServer) -> None:
    path = tmp_path / "token"
    path.write_text("1\n")
    credentials = Credentials(str(write_kubeconfig(tmp_path / "config", server, {"tokenFile": "token"})), {})
    assert credentials.current().token == "1"  # noqa: S105 - a file of this test
    path.write_text("2")
    assert credentials.current().token == "2"  # noqa: S105 - the same


@pytest.mark.parametrize("content", [f"{SECRET}\r\nX-Evil: 1", "", " ", f"{SECRET} b", f"{SECRET}ä"])
def test_a_token_that_is_no_header_is_refused_unseen(tmp_path: Path, server: ApiServer, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(ClusterError, match="holds no token") as raised:
        Credentials(str(write_kubeconfig(tmp_path / "config", server, {"tokenFile": "token"})), {}).current()
    assert SECRET not in raised.value.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"client-key": "KEY-OF-ANOTHER"}, "key values mismatch", id="a key of another certificate"),
        pytest.param({"client-key": "ENCRYPTED"}, "the key is encrypted", id="a key with a password"),
        pytest.param({"client-key": "/nowhere"}, "no such file", id="no key"),
        pytest.param({"client-certificate": "/dev/null"}, "cannot be used", id="an empty certificate"),
    ],
)
def test_certificates_that_cannot_be_used(
    tmp_path: Path, server: ApiServer, change: dict[str, str], words: str
) -> None:
    made = server.certificates
    encrypted = tmp_path / "encrypted.key"
    key = ["openssl", "ec", "-aes128", "-passout", "pass:x", "-in", str(made.key("admin")), "-out", str(encrypted)]
    subprocess.run(key, check=True, capture_output=True)
    names = {"KEY-OF-ANOTHER": str(made.key("scheduler")), "ENCRYPTED": str(encrypted)}
    user = {"client-certificate": str(made.certificate("admin")), "client-key": str(made.key("admin"))}
    user |= {key: names.get(value, value) for key, value in change.items()}
    with pytest.raises(ClusterError, match=words):
        Credentials(str(write_kubeconfig(tmp_path / "config", server, user)), {}).current()


def test_files_that_are_not_there_or_not_what_they_should_be(tmp_path: Path, server: ApiServer) -> None:
    with pytest.raises(ClusterError, match=r"config: no such file or directory"):
        Credentials(str(tmp_path / "config"), {}).current()
    (tmp_path / "large").write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(ClusterError, match="larger than"):
        Credentials(str(tmp_path / "large"), {}).current()
    authority = {"certificate-authority-data": base64.b64encode(b"no certificate").decode()}
    with pytest.raises(ClusterError, match="authority of the api server is not a certificate"):
        Credentials(str(write_kubeconfig(tmp_path / "config", server, **authority)), {}).current()


def test_a_pod_has_a_way_of_its_own(tmp_path: Path, certificates: Certificates) -> None:
    (tmp_path / "ca.crt").write_bytes(certificates.certificate("ca").read_bytes())
    (tmp_path / "token").write_text(TOKEN)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    way = Credentials("in-cluster", environment, tmp_path).current()
    assert (way.access.host, way.access.port, way.token) == ("fd00::1", 443, TOKEN)


@pytest.mark.parametrize("port", ["", "0", "65536", "http"])
def test_outside_of_a_pod_there_is_no_such_way(port: str) -> None:
    with pytest.raises(ClusterError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster_access({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": port})


def test_nothing_of_a_key_in_the_kubeconfig_touches_a_disk(tmp_path: Path, server: ApiServer) -> None:
    made = server.certificates
    user = {
        "client-certificate-data": base64.b64encode(made.certificate("admin").read_bytes()).decode(),
        "client-key-data": base64.b64encode(made.key("admin").read_bytes()).decode(),
    }
    path = write_kubeconfig(tmp_path / "config", server, user)
    before, open_before = set(tmp_path.iterdir()), os.listdir("/proc/self/fd")
    Credentials(str(path), {}).current()
    assert set(tmp_path.iterdir()) == before
    assert len(os.listdir("/proc/self/fd")) == len(open_before)
