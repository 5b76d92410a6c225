"""The tasks of ``site.yml`` that stage a driver, on stand-ins for nodes: who builds, who is handed what, who fails."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from provision.planning.driver_change import change_id
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


def modules_of(text: str) -> dict[str, bytes]:
    return {name: text.encode() if name.endswith(".ko") else data for name, data in modules_for(KERNEL).items()}


@dataclass(frozen=True)
class StandIn:
    """A node: whether it can build, and what is in its archive."""

    is_broken: bool = False
    gives: Mapping[str, bytes] = field(default_factory=lambda: modules_for(KERNEL))
    machine: str = ""  # its id, its name where that is empty

    def make(self, name: str, folder: Path) -> str:
        """Write what is there of it, and return the path of its Python."""
        facts = recorded(name)
        facts["facts"]["kernels"] = [{"release": KERNEL, "running": True, "modules": []}]
        facts["facts"]["driver"] = {"staged": []}
        facts["facts"]["node"]["machine_id"] = self.machine or name
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


def test_two_nodes_of_a_batch_build_for_it_and_for_later_ones(tmp_path: Path) -> None:
    played = play(tmp_path, {f"n{number}": StandIn() for number in range(1, 5)}, serial="3")

    assert played.done.returncode == 0, played.said
    (kept,) = kept_archives(tmp_path)
    digest = [kept.name.removesuffix(".tar.gz")]
    built = played.built()
    assert len(built) == 2
    assert "n4" not in built
    for one, other in (built, reversed(built)):
        of = f"driver 550.163.01 (proprietary) for kernel {KERNEL}"
        assert f"{one} builds {of}, compared with that of {other}" in " ".join(played.said.split())
    assert {node: played.handed(node) for node in ("n1", "n2", "n3", "n4") if node not in built} == {
        node: digest for node in ("n1", "n2", "n3", "n4") if node not in built
    }
    assert set(read_archive(kept)) == OWN | set(modules_for(KERNEL))


def test_where_two_nodes_differ_nothing_is_handed_on(tmp_path: Path) -> None:
    nodes = {f"n{number}": StandIn(gives=modules_of(f"{number}")) for number in range(1, 4)}

    played = play(tmp_path, nodes)

    assert played.done.returncode == 0, played.said
    assert played.built() == ["n1", "n2", "n3"]
    assert "have built different modules (nvidia-current.ko)" in " ".join(played.said.split()), played.said


def test_one_machine_under_several_names_is_no_second_word(tmp_path: Path) -> None:
    played = play(tmp_path, {f"n{number}": StandIn(machine="twin") for number in range(1, 4)})

    assert played.done.returncode == 0, played.said
    assert played.built() == ["n1", "n2", "n3"]
    assert not kept_archives(tmp_path)


def test_where_nodes_fail_or_give_anything_else_others_build(tmp_path: Path) -> None:
    hostile = StandIn(gives={"./dkms_source_tree/dkms.conf": b"touch /root/was-here"})
    nodes = {"n1": StandIn(is_broken=True), "n2": hostile, **{f"n{number}": StandIn() for number in range(3, 7)}}

    played = play(tmp_path, nodes)

    good = ["n3", "n4", "n5", "n6"]
    (kept,) = kept_archives(tmp_path)
    handed = [node for node in nodes if played.handed(node)]
    assert len([node for node in played.built() if node in good]) == 2
    assert {*handed, *played.built()} == set(nodes)
    assert {tuple(played.handed(node)) for node in handed} == {(kept.name.removesuffix(".tar.gz"),)}
    if "n2" in played.built():
        assert "its archive of built modules was refused" in played.said
