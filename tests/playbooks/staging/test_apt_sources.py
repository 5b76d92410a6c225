"""The real apt-get against sources and proxies that hang, break off, lose packages, and disks that are full."""

from __future__ import annotations

import hashlib
import http.server
import os
import re
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host, run_command
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.download import AptSource
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.lists import refresh_lists
from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import Freshness
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Request, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.functional

NAME, FILE, SIZE = "liblab", "liblab_1_amd64.deb", 3_000_000
REQUEST = Request({NAME: "1"})
CONTROL = f"Package: {NAME}\nVersion: 1\nArchitecture: amd64\nMaintainer: lab <lab@grapnel.invalid>\nDescription: x\n"
FOLDERS = ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/cache/apt", "var/lib/dpkg")


class Mirror(http.server.ThreadingHTTPServer):
    """Serves a folder; what it does with packages is set by the test. Requests that hang end with the test."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder, self.does, self.is_over = folder, "serve", threading.Event()
        super().__init__(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(http.server.SimpleHTTPRequestHandler):
    """One request to a mirror."""

    server: Mirror

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments, directory=str(arguments[2].folder))  # type: ignore[arg-type,attr-defined] # server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        does = self.server.does if self.path.endswith(".deb") else "serve"
        if does == "lose":
            return self.send_error(404)
        if does == "break off":
            self.send_response(200)
            self.send_header("Content-Length", str((self.server.folder / FILE).stat().st_size))
            self.end_headers()
            self.wfile.write(b"!<arch>\n" * 1000)
            self.wfile.flush()
        if does in ("hang", "break off"):
            self.server.is_over.wait()
            return None
        return super().do_GET()


class Apt:
    """apt with everything of its own below a folder; it waits two seconds where the product would wait longer."""

    def __init__(self, root: Path, mirror: Mirror) -> None:
        self.root, self.mirror, self.proxy = root, mirror, ""
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] {mirror.url}/ ./\n")
        self.out = root / "out"
        self.out.mkdir()

    @property
    def host(self) -> Host:
        return Host(Path("/"), self._run)

    def _run(self, arguments: Sequence[str], timeout_s: float) -> Finished:
        config = self.root / "apt.conf"
        proxy = f'Acquire::http::Proxy "{self.proxy}";\n' if self.proxy else ""
        config.write_text(
            f'Dir "{self.root}";\nDir::State::status "{self.root}/var/lib/dpkg/status";\n'
            f'Dir::Bin::Methods "/usr/lib/apt/methods";\nAPT::Architecture "amd64";\n'
            f'APT::Architectures "amd64";\n{proxy}'
        )
        words = [re.sub(r"(?<=Timeout=)\d+", "2", re.sub(r"(?<=Retries=)\d", "0", word)) for word in arguments]
        return run_command(["env", f"APT_CONFIG={config}", *words], timeout_s)

    def update(self) -> str | None:
        host = Host(self.root, self._run)  # whose lists are looked at, and never this machine's own
        error: str | None = refresh_lists(host, Freshness(-1.0, 60.0), Clock())["lists_error"]
        return error

    def fetch(self) -> SourceError:
        """Fetch, hold that to a failure, and return it."""
        source = AptSource()
        resolution = source.resolve(self.host, REQUEST)
        with pytest.raises(SourceError) as raised:
            source.fetch(self.host, REQUEST, resolution.downloads, str(self.out), 60.0)
        return raised.value


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    """A mirror with one package."""
    made, served = tmp_path / "made", tmp_path / "served"
    (made / "DEBIAN").mkdir(parents=True)
    served.mkdir()
    (made / "DEBIAN/control").write_text(CONTROL)
    (made / "blob").write_bytes(os.urandom(SIZE))
    build = ["dpkg-deb", "-Znone", "--root-owner-group", "--build", str(made), str(served / FILE)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    content = (served / FILE).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    (served / "Packages").write_text(f"{CONTROL}Filename: ./{FILE}\nSize: {len(content)}\nSHA256: {digest}\n")
    running = Mirror(served)
    yield running
    running.is_over.set()
    running.shutdown()
    running.server_close()


@pytest.fixture
def apt(tmp_path: Path, mirror: Mirror) -> Apt:
    """apt, whose lists know the mirror's package."""
    made = Apt(tmp_path / "root", mirror)
    assert made.update() is None
    return made


def test_a_package_arrives_from_a_source_that_works(apt: Apt) -> None:
    source = AptSource()
    resolution = source.resolve(apt.host, REQUEST)

    source.fetch(apt.host, REQUEST, resolution.downloads, str(apt.out), 60.0)

    assert [path.name for path in apt.out.iterdir()] == [FILE]


@pytest.mark.parametrize("does", ["hang", "break off"])
def test_a_source_that_stops_answering_is_given_up_and_named(apt: Apt, does: str) -> None:
    apt.mirror.does = does

    error = apt.fetch()

    assert error.code == "source-unreachable"
    assert str(error).startswith(f"{FILE} cannot be downloaded from {apt.mirror.url}: Connection ")


def test_a_proxy_that_hangs_is_given_up_and_named_without_its_password(apt: Apt) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as proxy:
        place = f"127.0.0.1:{proxy.getsockname()[1]}"
        apt.proxy = f"http://operator:secret@{place}"

        error, listed = apt.fetch(), apt.update()

    assert error.code == "source-unreachable"
    assert f"from {apt.mirror.url} through the proxy http://{place}: Connection " in str(error)
    assert "proxy" in error.remedy
    assert listed is not None
    assert f"{apt.mirror.url}" in listed
    assert "secret" not in str(error) + listed


def test_what_a_mirror_lost_is_gone_and_planned_again(apt: Apt) -> None:
    apt.mirror.does = "lose"

    error = apt.fetch()

    assert error.code == "package-gone"
    assert str(error).startswith(f"the source that lists {FILE} from {apt.mirror.url} no longer has it: 404")
    assert "`grapnel plan` again" in error.remedy


def test_a_download_that_takes_too_long_as_a_whole_names_its_source(apt: Apt) -> None:
    apt.mirror.does = "hang"
    source = AptSource()
    resolution = source.resolve(apt.host, REQUEST)

    with pytest.raises(SourceError) as raised:
        source.fetch(apt.host, REQUEST, resolution.downloads, str(apt.out), 1.0)

    assert raised.value.code == "download-timeout"
    assert str(raised.value) == f"apt did not finish within 1 s, with {apt.mirror.url}"


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system of its own is mounted by root alone")
def test_a_disk_without_room_for_the_packages_is_named(apt: Apt) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(apt.out)], check=True)
    try:
        error = apt.fetch()
    finally:
        subprocess.run(["umount", str(apt.out)], check=True)

    assert error.code == "no-space"
    assert str(apt.out) in str(error)
    assert "make room" in error.remedy
