"""Containers on a kernel that enforces SELinux: what grapnel's policy module gives them, and what it does not.

Real: kernel, Debian's policy with its module for containers, runc, the hook. The engine is a shell in an engine's
domain, the driver a tree of files, the GPUs consoles under their names.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lab.nodes import microvm
from provision.declaration.fleet.facts.kernel import SelinuxState
from provision.planning.planner.runtime.selinux import POLICY_TARGET, plan_selinux
from provision.planning.render.selinux import GPU_TYPE, MODULE_PATH, render_module
from tests.provision.samples import make_facts, replace
from tests.runtime_hook.containers import REPOSITORY, make_root
from tests.runtime_hook.drivertree import DriverTree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.functional, pytest.mark.timeout(900)]  # an emulated processor, on a busy machine

GUEST = REPOSITORY / "tests/runtime_hook/selinuxguest.py"
STORED = "var/lib/selinux/default/active/modules/400/grapnel/cil"
RELEASE = "/usr/lib/grapnel/releases/hook-test"
HOOK = """#!/usr/bin/python3 -IS
import sys
sys.path.insert(0, "/usr/lib/grapnel/releases/hook-test")
from runtime_hook.cli import main
sys.exit(main(sys.argv[1:]))
"""
NODE_SIDE = "ansible_collections/grapnel/node/plugins/module_utils/machine"
PLAN = """#!/usr/bin/python3 -IS
import os, sys
sys.path.insert(0, "/usr/lib/grapnel/releases/hook-test")
from runtime_hook.base.deadline import Deadline
from runtime_hook.container.injection import apply_plan
from runtime_hook.container.kernel import KernelSyscalls
from runtime_hook.container.operations.driverproc import MaskDriverProc
from runtime_hook.inputs.bundle import read_container, read_state
os.umask(0)
os.chdir("/")
state = read_state(0)
container = read_container(state)
syscalls = KernelSyscalls(state.pid, container.rootfs, mount_label={label})
apply_plan([MaskDriverProc(("driver", "ldiscs"), "/proc/tty")], syscalls, Deadline())
"""
DAEMON = """#!/usr/bin/python3 -IS
import asyncio, sys
sys.path.insert(0, "/usr/lib/grapnel/releases/hook-test")
from pathlib import Path
from plugin.admin.server import AdminServer
from plugin.base.log import Logger

async def answer(request):
    return {"result": "set"} if request["verb"] == "limit" else {"error": "unknown"}

async def serve():
    await AdminServer(Path("/run/grapnel/node.sock"), answer, Logger(sys.stderr)).start()
    await asyncio.Event().wait()

asyncio.run(serve())
"""
ASK = """#!/usr/bin/python3 -IS
import os, sys
sys.path.insert(0, "/usr/lib/grapnel/releases/hook-test")
from types import SimpleNamespace
from runtime_hook.base.errors import LimitError
from runtime_hook.container.memorylimit import limit_memory
try:
    state = SimpleNamespace(id="c1", pid=os.getpid())
    print(*limit_memory("/run/grapnel/node.sock", state, "required,GPU-1=1024", timeout_s=1.0))
except LimitError as error:
    print(error)
"""
# What a node's modules call, in the tree: the new policy is loaded later.
CHANGE = f"""
import sys
sys.path.insert(0, "/collection")
from {NODE_SIDE.replace("/", ".")}.host import Host
from {NODE_SIDE.replace("/", ".")}.selinux import has_module, install_module, remove_module
host = Host()
if sys.argv[1] == "install":
    install_module(host)
else:
    remove_module(host)
print(has_module(host))
"""
KEPT = ("etc/selinux", "var/lib/selinux")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What containers printed in the virtual machine, by name."""
    folder = tmp_path_factory.mktemp("microvm")
    system = microvm.ensure()
    given = folder / "upper"
    _fill(given, folder)
    compiled = f"python3 -m compileall -q --invalidation-mode unchecked-hash {RELEASE}"  # as an installation does
    microvm.change(system, folder, ["sh", "-ec", f"{compiled}; python3 /change.py install"])
    (given / "with/etc").mkdir(parents=True)
    shutil.copytree(given / "etc/selinux", given / "with/etc/selinux")
    (given / "with" / STORED).parent.mkdir(parents=True)
    shutil.copy(given / STORED, given / "with" / STORED)
    microvm.change(system, folder, ["sh", "-ec", "python3 /change.py remove; semodule -l > /listed"])
    listed = (given / "listed").read_text().split()
    removed = {name: _differences(system.tree / name, given / name) for name in KEPT}
    for name in KEPT:
        shutil.rmtree(given / name)
    console = microvm.boot(system, given, "python3 /guest.py", timeout_s=600.0)
    results = [json.loads(line[7:]) for line in console.splitlines() if line.startswith("RESULT ")]
    left = {"listed": listed, "removed": removed}
    facts = [json.loads(line[6:]) for line in console.splitlines() if line.startswith("FACTS ")]
    may = [json.loads(line[4:]) for line in console.splitlines() if line.startswith("MAY ")]
    assert "MODE Enforcing" in console, console
    return {one["name"]: one for one in results} | {"console": console, "facts": facts, "may": may, "left": left}


def _differences(before: Path, after: Path) -> list[str]:
    """Return which files of a folder are others than before; ``after`` has only those that were written."""
    files = (path.relative_to(after) for path in after.rglob("*") if path.is_file())
    return [str(name) for name in files if not _is_same(before / name, after / name)]


def _is_same(before: Path, after: Path) -> bool:
    return before.is_file() and before.read_bytes() == after.read_bytes()


def _fill(given: Path, folder: Path) -> None:
    objects = folder / "objects"
    objects.mkdir()
    make_root(given / "var/lib/containers/root")
    DriverTree(given / "host", objects, with_nodes=False).build()
    (given / "host/dev").mkdir()
    release = given / RELEASE.lstrip("/")
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("runtime_hook", "plugin"):
        shutil.copytree(REPOSITORY / package, release / package, ignore=ignored)
    texts = {
        "hook": HOOK,
        "node": DAEMON,
        "ask": ASK,
        "plan-labelled": PLAN.format(label="container.mount_label"),
        "plan-unlabelled": PLAN.format(label="''"),
    }
    for name, text in texts.items():
        (release / f"grapnel-{name}").write_text(text)
        (release / f"grapnel-{name}").chmod(0o755)
    _fill_module(given)
    (given / "etc/grapnel/hook.json").write_text(json.dumps({"entitlement": "env", "log": "none"}))
    shutil.copy(GUEST, given / "guest.py")
    (given / "change.py").write_text(CHANGE)


def _fill_module(given: Path) -> None:
    """Give the machine the policy module's text, and what the node's modules call."""
    module = given / MODULE_PATH.lstrip("/")
    module.parent.mkdir(parents=True)
    module.write_text(render_module())
    collected = given / "collection" / NODE_SIDE
    collected.mkdir(parents=True)
    for name in ("host", "printable", "selinux"):
        shutil.copy(REPOSITORY / "playbooks/plugins/module_utils/machine" / f"{name}.py", collected)


OPENED = {"opened nvidia0", "opened nvidiactl"}


def test_the_hook_is_started_and_gives_a_gpu_only_with_the_module(said: dict[str, Any]) -> None:
    assert "grapnel-hook: permission denied" in " ".join(said["hook-of-a-library"]["lines"]), said["console"]
    assert said["given"]["status"] == "status 0", said["console"]
    assert {*OPENED, "libcuda.so.1 42"} <= set(said["given"]["lines"]), said["console"]


def test_nodes_of_the_host_that_a_container_was_given_are_opened_only_with_the_module(said: dict[str, Any]) -> None:
    assert set(said["bound"]["lines"]) >= OPENED, said["console"]
    for name in ("bound-before", "bound-after"):
        assert "ls: /dev/nvidia0: Permission denied" in said[name]["lines"], said["console"]
        assert OPENED.isdisjoint(said[name]["lines"]), said["console"]


def test_a_container_that_was_given_none_has_none_with_the_module(said: dict[str, Any]) -> None:
    assert "libcuda.so.1 -1" in said["not-given"]["lines"], said["console"]
    assert OPENED.isdisjoint(said["not-given"]["lines"]), said["console"]


def test_what_covers_the_drivers_folder_has_the_label_of_the_containers_mounts(said: dict[str, Any]) -> None:
    assert said["labelled"]["status"] == "status 0", said["console"]
    assert said["labelled"]["lines"] == ["driver", "ldiscs"]
    assert said["unlabelled"]["lines"] == ["ls: can't open '/proc/tty': Permission denied"], said["console"]


def test_the_hook_may_ask_the_daemon_only_with_the_module(said: dict[str, Any]) -> None:
    """Engines have a domain, and the daemon that of services without one: Debian's policy keeps them apart."""
    assert "permission denied" in " ".join(said["asked-before"]["lines"]).lower(), said["console"]
    assert said["asked"]["lines"] == ["memory limit set"], said["console"]
    assert ":initrc_t:" in said["asked"]["domain"]
    assert ":grapnel_socket_t:" in said["asked"]["label"]


def test_no_confined_container_may_connect_to_the_daemon_or_another_service(said: dict[str, Any]) -> None:
    assert said["may"] == [
        {
            "container_t connectto": False,
            "container_t write": False,
            "container_t unlink": False,
            "container_engine_t connectto": True,
            "container_engine_t write": True,
            "container_engine_t unlink": False,
            "spc_t connectto": True,
            "spc_t write": True,
            "spc_t unlink": True,
        }
    ]


def test_a_module_that_is_taken_out_leaves_nothing_in_the_policy(said: dict[str, Any]) -> None:
    assert "container" in said["left"]["listed"]
    assert "grapnel" not in said["left"]["listed"]
    counted = "default/active/commit_num"  # libsemanage counts its changes
    assert said["left"]["removed"] == {"etc/selinux": [], "var/lib/selinux": [counted]}


def test_facts_tell_how_the_machine_stands_and_what_it_refused(said: dict[str, Any]) -> None:
    before, after = said["facts"]
    nodes = ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]
    assert {**before, "denials": []} == {
        "mode": "enforcing",
        "policy": "default",
        "tools": True,
        "module": None,
        "nodes": dict.fromkeys(nodes, "xserver_misc_device_t"),
        "denials": [],
    }
    refused = [each for each in before["denials"] if each.startswith("container_t ")]
    assert any("nvidia0 (xserver_misc_device_t, chr_file)" in each for each in refused), said["console"]
    assert after["nodes"] == dict.fromkeys(nodes, GPU_TYPE)
    assert after["module"] == hashlib.sha256(render_module().encode()).hexdigest()


@pytest.mark.long
def test_what_apply_and_remove_do_is_found_done_by_the_next_plan(tmp_path: Path) -> None:
    """The policy is made and loaded by the machine itself while it is enforced, which takes a minute."""
    given = tmp_path / "given"
    _fill_module(given)
    shutil.copy(REPOSITORY / "tests/runtime_hook/selinuxsteps.py", given / "steps.py")
    console = microvm.boot(microvm.ensure(), given, "python3 /steps.py", timeout_s=600.0)
    steps = [json.loads(line[5:]) for line in console.splitlines() if line.startswith("STEP ")]
    planned = {}
    for step in steps:
        state = msgspec.convert(step["facts"], SelinuxState)
        assert state.mode == "enforcing"
        planned[step["name"]] = [item.target for item in plan_selinux(replace(make_facts(), selinux=state))]
    labels = "labels of device nodes"
    assert planned == {
        "before": [POLICY_TARGET, labels],
        "applied": [],
        "was permissive": [labels],
        "applied again": [],
        "removed": [POLICY_TARGET, labels],
    }, console
    assert [step["is_listed"] for step in steps] == [False, True, True, True, False]
    former = dict.fromkeys(("/dev/nvidia0", "/dev/nvidia1"), "xserver_misc_device_t")
    assert steps[-1]["facts"]["nodes"] == former
