"""What a real containerd says before anything is changed: it is asked in a mount namespace, without our file and with.

The folder ``/etc/containerd`` is one below the test's own, which is laid over ``/etc`` for the engine alone.
"""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines.rehearsal import rehearse_engine
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileText, find_changes
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

from lab import golang
from lab.cri.engine import packages, unpack
from lab.golang.programs import NEWEST_CONTAINERD_VERSION
from provision.declaration.fleet.facts.node import Engine
from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.engines.containerd.imports import DROP_IN_PATH, MAIN_PATH
from tests.provision.samples import DEBIAN_CONFIG, RUNNING, edit_file, make_facts, make_stack, plan, replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

pytestmark = pytest.mark.functional

CRI = "io.containerd.grpc.v1.cri"
CRI_3 = "io.containerd.cri.v1.runtime"
SITE = "/etc/containerd/conf.d/10-site.toml"
IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
ENGINE = "/usr/bin/containerd"
SECRET = "hunter2hunter2"  # noqa: S105 - what must not be seen
CUSTOMISED = f"""\
{DEBIAN_CONFIG}
  [plugins."{CRI}".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{CRI}".containerd.runtimes.runc.options]
      SystemdCgroup = true
  [plugins."{CRI}".containerd.runtimes.kata]
    runtime_type = "io.containerd.kata.v2"
  [plugins."{CRI}".registry.configs."registry.example".auth]
    password = "{SECRET}"
"""
LIMITED = f'[plugins."{CRI}"]\nmax_container_log_line_size = 999\n'
BEFORE_2 = pytest.mark.parametrize("program", ["bookworm", "trixie"], indirect=True)
SECOND = pytest.mark.parametrize("program", ["2"], indirect=True)


@dataclass(frozen=True)
class Node:
    """A node of files below a folder, with a real containerd."""

    host: Host
    version: str

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        place = self.host.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)

    def rehearse(self, files: Mapping[str, str]) -> str | None:
        wanted = [FileText(path, text, 0o644) for path, text in files.items()]
        return rehearse_engine(self.host, "containerd", find_changes(self.host, wanted))

    def rendered(self) -> dict[str, str]:
        """Return our files for what the node has."""
        folder = self.host.path("/etc/containerd/conf.d")
        drop_ins = {f"/etc/containerd/conf.d/{each.name}": each.read_text() for each in folder.glob("*.toml")}
        main = self.host.path(MAIN_PATH)
        text = main.read_text() if main.exists() else None
        files = render_containerd(main=text, drop_ins=drop_ins, handlers=("nvidia",), engine_version=self.version)
        return {MAIN_PATH: files.main, DROP_IN_PATH: files.drop_in}


@pytest.fixture(scope="module", params=["bookworm", "trixie", "2", pytest.param("2.4", marks=pytest.mark.long)])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of containerd 1.6, 1.7 and 2."""
    folder = tmp_path_factory.mktemp("containerd")
    versions = {"2": None, "2.4": NEWEST_CONTAINERD_VERSION}
    is_second = request.param in versions
    programs = golang.containerd(versions[request.param]) if is_second else unpack(packages(request.param), folder)
    return programs / "containerd"


@pytest.fixture
def node(program: Path, tmp_path: Path) -> Node:
    """A node whose ``/etc`` is the test's own."""

    def run(arguments: Sequence[str], timeout_s: float) -> Finished:
        own = ["unshare", "--mount", "sh", "-ec", 'mount --bind "$0" /etc && exec "$@"', str(tmp_path / "etc")]
        command = [*own, *(str(program) if each == ENGINE else each for each in arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        return Finished(done.returncode, done.stdout, done.stderr)

    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    made = Node(Host(tmp_path, run), version.removeprefix("v").partition("~")[0])
    made.write(ENGINE, "", 0o755)
    tmp_path.joinpath("etc/containerd/conf.d").mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    ("main", "site"),
    [
        pytest.param(None, None, id="nothing configured"),
        pytest.param(DEBIAN_CONFIG, None, id="Debian's own file"),
        pytest.param(CUSTOMISED, None, id="an administrator's file"),
        pytest.param("version = 2\n" + IMPORTS, f"version = 2\n{LIMITED}", id="a drop-in of the administrator's"),
        pytest.param(DEBIAN_CONFIG, f"version = 2\n{LIMITED}", id="a drop-in that nobody imports"),
        pytest.param(
            "version = 2\n" + IMPORTS + LIMITED, "[debug]\nlevel = 'warn'\n", id="a drop-in without a version"
        ),
    ],
)
def test_what_is_rendered_changes_nothing_but_the_handler(main: str | None, site: str | None, node: Node) -> None:
    for path, text in ((MAIN_PATH, main), (SITE, site)):
        if text is not None:
            node.write(path, text)
    first = node.rendered()

    assert node.rehearse(first) is None
    for path, text in first.items():
        node.write(path, text)
    assert node.rendered() == first
    assert node.rehearse({**first, MAIN_PATH: f"{first[MAIN_PATH]}# looked at\n"}) is None


@pytest.mark.parametrize("place", [MAIN_PATH, SITE, DROP_IN_PATH], ids=["main file", "drop-in", "at the place of ours"])
def test_a_handler_that_is_taken_over_is_all_that_changes(place: str, node: Node) -> None:
    plugin, version = (CRI_3, 3) if node.version.startswith("2.") else (CRI, 2)
    at = f'[plugins."{plugin}".containerd.runtimes'
    theirs = "".join(
        f'{at}.{name}]\nruntime_type = "io.containerd.runc.v2"\nprivileged_without_host_devices = true\n'
        f'{at}.{name}.options]\nBinaryName = "/usr/bin/nvidia-container-runtime"\nSystemdCgroup = true\n'
        for name in ("nvidia", "nvidia-cdi")
    )
    texts = {MAIN_PATH: f"version = {version}\n{IMPORTS}", place: f"version = {version}\n{IMPORTS}{theirs}"}
    for path, text in texts.items():
        node.write(path, text)
    facts = make_facts(engines={"containerd": Engine(binary=ENGINE, version=node.version)})
    for path, text in texts.items():
        facts = edit_file(facts, path, text)
    facts = replace(facts, services={"containerd.service": RUNNING})
    off: dict[str, dict[str, object]] = {"driver": {"enabled": False}, "plugin": {"enabled": False}}

    planned = plan(facts, make_stack(**off, runtime={"adopt": True})).roles.runtime

    assert planned is not None
    files = {each.path: each.content for each in planned.runtime_files}
    assert node.rehearse(files) is None
    for path, text in files.items():
        node.write(path, text)
    engine = node.host.run([ENGINE, "--config", MAIN_PATH, "config", "dump"], 30.0)
    runtimes = tomllib.loads(engine.stdout)["plugins"][plugin]["containerd"]["runtimes"]
    assert runtimes["nvidia"]["base_runtime_spec"] == "/etc/grapnel/containerd/base-spec.json"
    assert "nvidia-container-runtime" not in str(runtimes["nvidia"])
    assert runtimes["nvidia-cdi"]["options"]["BinaryName"] == "/usr/bin/nvidia-container-runtime"


def test_a_drop_in_that_loses_a_setting_is_refused(node: Node) -> None:
    node.write(MAIN_PATH, f"version = 2\n{IMPORTS}{LIMITED}")
    lossy = f'version = 2\n[plugins."{CRI}"]\nmax_container_log_line_size = 16384\n'

    complaint = node.rehearse({DROP_IN_PATH: lossy})

    assert complaint is not None
    assert "max_container_log_line_size would go from 999 to 16384" in complaint
    assert "nothing was changed" in complaint
    assert not node.host.path(DROP_IN_PATH).exists()


@BEFORE_2
def test_a_password_that_would_change_is_named_and_not_shown(node: Node) -> None:
    auth = f'[plugins."{CRI}".registry.configs."registry.example".auth]\npassword = "{SECRET}"\n'
    node.write(MAIN_PATH, f"version = 2\n{IMPORTS}{auth}", 0o600)

    complaint = node.rehearse({DROP_IN_PATH: f'version = 2\n[plugins."{CRI}"]\n'})

    assert complaint is not None
    assert "registry.configs.'registry.example'.auth.password would go from (not shown) to nothing" in complaint
    assert SECRET not in complaint


@BEFORE_2
def test_a_byte_order_mark_is_taken_and_kept(node: Node) -> None:
    node.write(MAIN_PATH, f"\ufeff{CUSTOMISED}")
    files = node.rendered()

    assert files[MAIN_PATH].startswith("\ufeffversion")
    assert node.rehearse(files) is None


@SECOND
@pytest.mark.parametrize(
    ("main", "site", "ours"),
    [
        pytest.param("version = 3\n" + IMPORTS, f"version = 2\n{LIMITED}", 3, id="3 beside an imported 2"),
        pytest.param(f"version = 2\n{IMPORTS}{LIMITED}", None, 3, id="3 beside a main file of 2"),
    ],
)
def test_files_of_two_versions_are_refused_where_a_value_would_change(
    main: str, site: str | None, ours: int, node: Node
) -> None:
    node.write(MAIN_PATH, main)
    if site:
        node.write(SITE, site)
    drop_in = (
        f'version = {ours}\n[plugins."{CRI_3}".containerd.runtimes.nvidia]\n'
        'runtime_type = "io.containerd.runc.v2"\nbase_runtime_spec = "/etc/grapnel/containerd/base-spec.json"\n'
    )

    complaint = node.rehearse({DROP_IN_PATH: drop_in})

    assert complaint is not None
    assert "max_container_log_line_size would go from 999 to 16384" in complaint


def test_a_value_that_the_engine_stumbles_over_is_not_quoted(node: Node) -> None:
    node.write(MAIN_PATH, DEBIAN_CONFIG, 0o600)

    complaint = node.rehearse({MAIN_PATH: f'{DEBIAN_CONFIG}\n[debug]\nuid = "{SECRET}"\nlevel "{SECRET}"\n'})

    assert complaint is not None
    assert "does not accept its configuration" in complaint
    assert SECRET not in complaint


def test_links_of_the_folder_are_never_written_through(node: Node, tmp_path: Path) -> None:
    elsewhere = tmp_path / "etc" / "site"
    elsewhere.mkdir()
    elsewhere.joinpath("99-nvidia.toml").write_text("version = 2\n")
    tmp_path.joinpath("etc/containerd/conf.d").rmdir()
    tmp_path.joinpath("etc/containerd/conf.d").symlink_to("/etc/site")
    node.write(MAIN_PATH, f"version = 2\n{IMPORTS}")

    assert node.rehearse({DROP_IN_PATH: node.rendered()[DROP_IN_PATH]}) is None

    assert elsewhere.joinpath("99-nvidia.toml").read_text() == "version = 2\n"
