"""The real dnf and zypper on booted nodes, against a server that hangs, or has lost packages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Request, SourceError
from ansible_collections.grapnel.node.plugins.module_utils.packages.sources import find_source

from lab.nodes import Node, NodeSpec, Site
from lab.sources import BASE_SUITE, SYSTEMS
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import PackageSource

pytestmark = pytest.mark.nodes

ENVIRONMENT = ("env", "-i", "LC_ALL=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
FOLDER = "/var/lib/staged"
PACKAGE = {"dnf": "nvidia-persistenced", "zypper": "nvidia-persistenced"}
MODE = "/run/mirror"
# Serves the node's own repository; what it does with packages is read from a file.
SERVER = f"""
import http.server, pathlib, time

class Answer(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        does = pathlib.Path("{MODE}").read_text().strip() if self.path.endswith(".rpm") else "serve"
        if does == "lose":
            return self.send_error(404)
        if does == "hang":
            time.sleep(1000)
        super().do_GET()

http.server.ThreadingHTTPServer(("127.0.0.1", 8099), Answer).serve_forever()
"""
REPOSITORIES = {"dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}


class Mirrored:
    """A node whose package manager reads its repository through a server."""

    def __init__(self, node: Node) -> None:
        self.node, self.system = node, SYSTEMS[node.spec.system]
        self.host = Host(node.root, self._run)
        self.source: PackageSource = find_source(self.system.manager)
        name = PACKAGE[self.system.manager]
        (node.root / "srv/mirror.py").write_text(SERVER)
        node.run(["mkdir", "-p", FOLDER])
        self.does("serve")
        node.run(["systemd-run", "--unit=mirror", "--working-directory=/srv/bundle", "python3", "/srv/mirror.py"])
        answers = ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8099"]
        wait_until(lambda: node.run(answers, check=False).returncode == 0, lambda: "the server does not listen")
        edit = f"sed -i 's,file:/*srv/bundle,http://operator:secret@127.0.0.1:8099,' {self._repository}/*.repo"
        node.run(["sh", "-c", edit])
        refresh = {"dnf": ["dnf", "-q", "makecache"], "zypper": ["zypper", "-n", "--gpg-auto-import-keys", "refresh"]}
        node.run(refresh[self.system.manager], timeout_s=120)
        if self.system.is_modular:
            branch = self.system.versions[-1].partition(".")[0]
            node.run(["dnf", "-y", "module", "enable", f"nvidia-driver:{branch}-open"], timeout_s=120)
        asked = ["find", "/srv/bundle", "-name", f"{name}-{self.system.versions[-1]}-*.rpm"]
        (self.file,) = node.run(asked).stdout.split()
        form = "%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}"
        version = node.run(["rpm", "-qp", "--nosignature", "--qf", form, self.file]).stdout
        self.request = Request({name: version})

    @property
    def _repository(self) -> str:
        return REPOSITORIES[self.system.manager]

    def _run(self, arguments: Sequence[str], timeout_s: float) -> Finished:
        words = [{"--setopt=timeout=30": "--setopt=timeout=3", "90": "6"}.get(word, word) for word in arguments]
        done = self.node.run([*ENVIRONMENT, *words], check=False, timeout_s=timeout_s)
        return Finished(done.returncode, done.stdout, done.stderr)

    def does(self, what: str) -> None:
        """Say what the server does with packages."""
        self.node.run(["sh", "-c", f"echo {what} > {MODE}"])

    def fetch(self) -> SourceError:
        """Fetch, hold that to a failure, and return it."""
        resolution = self.source.resolve(self.host, self.request)
        with pytest.raises(SourceError) as raised:
            self.source.fetch(self.host, self.request, resolution.downloads, FOLDER, 120.0)
        self.does("serve")
        assert "secret" not in str(raised.value)
        return raised.value


@pytest.fixture(scope="module", params=["rocky9", "sles15"])
def mirrored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrored]:
    """A node of a system, without a driver."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        site = Site(f"m{os.getpid()}")
        try:
            yield Mirrored(site.up(NodeSpec(request.param, suite=BASE_SUITE, gpus=1, system=request.param)))
        finally:
            site.destroy()


def test_what_a_mirror_lost_is_gone_and_planned_again(mirrored: Mirrored) -> None:
    mirrored.does("lose")

    error = mirrored.fetch()

    assert error.code == "package-gone", error
    assert f"-{mirrored.system.versions[-1]}-" in str(error), "the first of several that did not arrive"
    assert "127.0.0.1:8099" in str(error)
    assert "`grapnel plan` again" in error.remedy


def test_a_server_that_hangs_is_given_up_and_named(mirrored: Mirrored) -> None:
    mirrored.does("hang")

    error = mirrored.fetch()

    assert error.code in ("source-unreachable", "download-timeout"), error
    assert "http://127.0.0.1:8099" in str(error)


def test_packages_arrive_from_a_server_that_works(mirrored: Mirrored) -> None:
    keys = f"sed -n 's/^gpgkey=//p' {REPOSITORIES[mirrored.system.manager]}/*.repo | sort -u | xargs rpm --import"
    mirrored.node.run(["sh", "-c", keys])
    resolution = mirrored.source.resolve(mirrored.host, mirrored.request)

    mirrored.source.fetch(mirrored.host, mirrored.request, resolution.downloads, FOLDER, 120.0)

    assert set(mirrored.host.names(FOLDER)) >= {one.name for one in resolution.downloads}
