"""A built module is got from a node piece by piece, and only as much of it as was announced and is allowed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.built_module import (
    PIECE_BYTES,
    BuiltModuleError,
    Wanted,
    describe_archive,
    find_archive,
    read_piece,
)

from tests.ansible_modules import shared_modules
from tests.playbooks.staging.node import HOME, KERNEL, Node, change_of

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
VERSION = "550.163.01"
WANTED = Wanted(KERNEL, "nvidia-current", VERSION, "proprietary")
LIMIT = 5 * 1024 * 1024
# What root of a node may put in the place of Python: it answers the pieces of an archive as its arguments say.
PYTHON = """#!{real}
import ast, base64, json, re, sys, time
program = open(sys.argv[1], "rb").read() if len(sys.argv) == 2 else sys.stdin.buffer.read()  # else with -c
given = json.loads(ast.literal_eval(re.search(rb"^\\s*params=(.*),$", program, re.MULTILINE)[1].decode()))
offset = given["ANSIBLE_MODULE_ARGS"].get("offset", -1)
size, digest, pieces = {size!r}, {digest!r}, {pieces!r}
answer = {{"changed": False, "size_bytes": size, "sha256": digest}} if offset < 0 else {{"changed": False}}
if offset >= 0:
    piece = pieces[offset // {piece_bytes}]
    answer["piece"] = piece if isinstance(piece, str) else base64.b64encode(b"x" * piece).decode()
print(json.dumps(answer))
"""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path, offered={name: [VERSION] for name in ("libcuda1", "nvidia-dkms")})
    assert made.stage(change_of()).complete
    return made


def test_the_archive_of_a_staged_change_is_found_by_what_it_is_of(node: Node) -> None:
    path = find_archive(node.host, WANTED)

    data = node.path(path).read_bytes()
    assert describe_archive(node.host, path) == (len(data), hashlib.sha256(data).hexdigest())
    assert read_piece(node.host, path, 0) == data
    assert read_piece(node.host, path, 5) == data[5:]
    assert read_piece(node.host, path, len(data)) == b""


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted("6.13.0-amd64", "nvidia-current", VERSION, "proprietary"),
        Wanted(KERNEL, "nvidia", VERSION, "proprietary"),
        Wanted(KERNEL, "nvidia-current", "550.1", "proprietary"),
        Wanted(KERNEL, "nvidia-current", VERSION, "open"),
        Wanted("../../../../etc/shadow", "nvidia-current", VERSION, "proprietary"),
    ],
    ids=["kernel", "module", "version", "flavour", "path"],
)
def test_what_is_not_there_is_named(node: Node, wanted: Wanted) -> None:
    with pytest.raises(BuiltModuleError, match="this node has no modules of driver"):
        find_archive(node.host, wanted)


def test_a_set_that_is_not_sealed_gives_nothing(node: Node) -> None:
    (folder,) = node.host.names(f"{HOME}/staged")
    node.path(f"{HOME}/staged/{folder}/complete").unlink()

    with pytest.raises(BuiltModuleError):
        find_archive(node.host, WANTED)


@dataclass(frozen=True)
class Liar:
    """What a node says of its archive: size and digest, and pieces by their lengths, or as text."""

    size: object
    pieces: tuple[int | str, ...] = ()
    digest: object = ""
    words: str = ""

    def python(self) -> str:
        lengths = [one for one in self.pieces if isinstance(one, int)]
        digest = self.digest or hashlib.sha256(b"x" * sum(lengths)).hexdigest()
        return PYTHON.format(
            real=sys.executable, size=self.size, digest=digest, pieces=self.pieces, piece_bytes=PIECE_BYTES
        )


LARGE = PIECE_BYTES + 1000
LIARS = {
    "giant": Liar(1 << 40, words="the node says that its archive has 1099511627776 bytes"),
    "empty": Liar(0, words="the node says that its archive has 0 bytes"),
    "negative": Liar(-1, words="the node says that its archive has -1 bytes"),
    "no-number": Liar("many", words="its size_bytes is str, not int"),
    "no-digest": Liar(10, (10,), digest="../x", words="the node says that its archive has 10 bytes"),
    "more": Liar(10, (11,), words="the archive on the node changed while it was read"),
    "less": Liar(LARGE, (PIECE_BYTES, 999), words="the archive on the node changed while it was read"),
    "nothing": Liar(LARGE, (PIECE_BYTES, 0), words="the archive on the node changed while it was read"),
    "endless": Liar(LARGE, (PIECE_BYTES, 4_000_000), words="it holds more than 3500000 characters"),
    "no-base64": Liar(10, ("*" * 16,), words="a piece of its archive that is not base64"),
    "other-content": Liar(10, (10,), digest="a" * 64, words="does not have the digest that the node gave"),
}


@dataclass(frozen=True)
class Got:
    said: str
    folder: Path


@pytest.fixture(scope="module")
def got(tmp_path_factory: pytest.TempPathFactory) -> Got:
    """Ask an honest node and all liars, in one run."""
    folder = tmp_path_factory.mktemp("got")
    wanted = {"kernel": KERNEL, "dkms": "nvidia", "version": VERSION, "flavour": "open", "limit_bytes": LIMIT}
    variables = {"grapnel_built": {**wanted, "destination": f"{folder}/{{{{ inventory_hostname }}}}"}}
    nodes = {"honest": Liar(LARGE, (PIECE_BYTES, 1000)), **LIARS}
    return Got(run_on(nodes, folder, ROOT / "playbooks" / "built_module.yml", variables), folder)


def run_on(nodes: Mapping[str, Liar], folder: Path, playbook: Path, variables: Mapping[str, object]) -> str:
    """Run a playbook on nodes that answer as they are told, and return what it says."""
    hosts = []
    for name, liar in nodes.items():
        python = folder / f"python-{name}"
        python.write_text(liar.python())
        python.chmod(0o755)
        hosts.append(f"{name} ansible_connection=local ansible_python3_interpreter={python}\n")
    (folder / "hosts").write_text("".join(hosts))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    argv = ["ansible-playbook", "-i", str(folder / "hosts"), str(playbook)]
    with shared_modules(folder / "cache"):
        done = subprocess.run(
            [*argv, "--forks", "4", "-e", json.dumps(variables)],
            env={**environment, "ANSIBLE_HOME": str(folder / "ansible"), "XDG_CACHE_HOME": str(folder / "cache")},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_an_archive_comes_in_pieces_and_whole(got: Got) -> None:
    assert (got.folder / "honest").read_bytes() == b"x" * LARGE, got.said
    assert (got.folder / "honest").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.parametrize("name", LIARS)
def test_a_node_that_lies_about_its_archive_leaves_no_file(got: Got, name: str) -> None:
    (said,) = [line for line in got.said.splitlines() if line.startswith(f"fatal: [{name}]")]
    assert LIARS[name].words in said
    assert not (got.folder / name).exists()


KEEPING = """\
- hosts: all
  gather_facts: false
  tasks:
    - grapnel.node.built_module:
        keep_as: "{{ build }}"
"""


@pytest.mark.slow
def test_what_is_to_be_kept_for_others_is_looked_into_first(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(KEEPING)
    build = {"distribution": "debian-13", "architecture": "x86_64", "kernel": KERNEL, "dkms": "nvidia"}
    variables = {"build": {**build, "version": VERSION, "flavour": "open"}}

    said = run_on({"n1": Liar(10, (10,))}, tmp_path, tmp_path / "play.yml", variables)

    assert "its archive of built modules was refused" in said
    (shelf,) = (tmp_path / "cache/grapnel/built-modules").iterdir()
    assert list(shelf.iterdir()) == []
