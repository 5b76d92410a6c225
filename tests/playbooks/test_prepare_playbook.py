"""The tasks of ``site.yml`` that stage a driver, on stand-ins for nodes: who builds, who is handed what, who fails."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from provision.driver_change import change_id
from tests.attack.stand_ins import recorded
from tests.playbooks.preparing import kept_archives, prepare_driver
from tests.provision.apply.workshop import change_of, modules_for
from tests.provision.builds.samples import KERNEL, read_archive, write_archive

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.slow

# In the place of a node's Python: it answers for the modules of the collection, and notes what was asked of the node.
PYTHON = """#!{real}
import ast, base64, hashlib, json, os, re, sys
program = open(sys.argv[1], "rb").read() if len(sys.argv) == 2 else sys.stdin.buffer.read()  # else with -c
module = re.search(rb"module_fqn='([\\w.]+)'", program)[1].decode().rpartition(".")[2]
given = json.loads(ast.literal_eval(re.search(rb"^\\s*params=(.*),$", program, re.MULTILINE)[1].decode()))
asked, node = given["ANSIBLE_MODULE_ARGS"], {node!r}
def file(name):
    return os.path.join({folder!r}, node + "." + name)
answer = {{"changed": False}}
if module == "facts":
    answer = json.load(open(file("facts")))
    if os.path.exists(file("staged")):
        staged = {{"id": open(file("staged")).read(), "version": "1", "complete": True}}
        answer["facts"]["driver"] = {{"staged": [staged]}}
elif module == "handover":
    open(file("handed"), "w").write(json.dumps(asked["files"]))
    answer = {{"changed": True, "missing": []}}
elif module == "driver":
    has_it = os.path.exists(file("handed"))
    answer = {{"changed": True, "id": "", "status": {{}}, "staged": {{}}, "problems": [], "reboot": ""}}
    open(file("has" if has_it else "built"), "w")
    if {broken!r} and not has_it:
        answer = {{"failed": True, "msg": "the module does not build"}}
    else:
        open(file("staged"), "w").write({change!r})
elif module == "built_module":
    data = open(file("archive"), "rb").read()
    answer = {{"changed": False, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}}
    if asked.get("offset", -1) >= 0:
        answer = {{"changed": False, "piece": base64.b64encode(data).decode()}}
print(json.dumps(answer))
"""
CHANGE = change_of((KERNEL,))
OWN = {f"./dkms_binaries_only/{name}" for name in ("PACKAGE_NAME", "PACKAGE_VERSION", "dkms.conf")}


@dataclass(frozen=True)
class StandIn:
    """A node: whether it can build, and what is in its archive."""

    is_broken: bool = False
    gives: Mapping[str, bytes] = field(default_factory=lambda: modules_for(KERNEL))

    def make(self, name: str, folder: Path) -> str:
        """Write what is there of it, and return the path of its Python."""
        facts = recorded(name)
        facts["facts"]["kernels"] = [{"release": KERNEL, "running": True, "modules": []}]
        facts["facts"]["driver"] = {"staged": []}
        (folder / f"{name}.facts").write_text(json.dumps(facts))
        write_archive(folder / f"{name}.archive", self.gives)
        python = folder / f"{name}.python"
        values = {"node": name, "folder": str(folder), "broken": self.is_broken, "change": change_id(CHANGE)}
        python.write_text(PYTHON.format(real=sys.executable, **values))
        python.chmod(0o755)
        return str(python)


@dataclass(frozen=True)
class Played:
    done: subprocess.CompletedProcess[str]
    folder: Path

    @property
    def said(self) -> str:
        return self.done.stdout + self.done.stderr

    def built(self) -> list[str]:
        """Return the nodes that compiled, or tried to."""
        return sorted(path.stem for path in self.folder.glob("*.built"))

    def handed(self, node: str) -> list[str]:
        """Return the digests of what a node was handed."""
        path = self.folder / f"{node}.handed"
        return [one["sha256"] for one in json.loads(path.read_text())] if path.exists() else []


def play(folder: Path, nodes: Mapping[str, StandIn], serial: str = "100%") -> Played:
    local = "ansible_connection: local"
    hosts = [
        f"    {name}: {{{local}, ansible_python3_interpreter: {one.make(name, folder)}}}" for name, one in nodes.items()
    ]
    inventory = "\n".join(["all:", "  hosts:", *hosts, ""])
    return Played(prepare_driver(folder, inventory, CHANGE, serial=serial), folder)


def test_the_first_node_by_name_builds_for_its_batch_and_later_ones(tmp_path: Path) -> None:
    played = play(tmp_path, {"n10": StandIn(), "n2": StandIn(), "n1": StandIn()}, serial="2")

    assert played.done.returncode == 0, played.said
    assert "n2 builds driver 550.163.01 (proprietary)" in played.said
    assert played.built() == ["n2"]
    (kept,) = kept_archives(tmp_path)
    assert played.handed("n1") == played.handed("n10") == [kept.name.removesuffix(".tar.gz")]
    assert set(read_archive(kept)) == OWN | set(modules_for(KERNEL))


def test_where_a_node_fails_or_gives_anything_else_the_next_one_builds(tmp_path: Path) -> None:
    hostile = StandIn(gives={"./dkms_source_tree/dkms.conf": b"touch /root/was-here"})
    nodes = {"n1": StandIn(is_broken=True), "n2": hostile, "n3": StandIn(), "n4": StandIn()}

    played = play(tmp_path, nodes)

    assert "the module does not build" in played.said
    assert "its archive of built modules was refused" in played.said
    assert played.built() == ["n1", "n2", "n3"]
    (kept,) = kept_archives(tmp_path)
    assert played.handed("n4") == [kept.name.removesuffix(".tar.gz")]
    assert not played.handed("n2")
