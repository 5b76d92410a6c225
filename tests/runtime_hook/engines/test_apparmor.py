"""Containers with an engine's AppArmor profile: what the hook gives them, and what is told of denials.

Real: kernel, AppArmor with Debian's profile for runc, runc, the hook. The container's profile has the rules of those
that containerd and Docker load; the driver is a tree of files, the GPUs are consoles under their names.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from lab.nodes import microvm
from tests.runtime_hook.containers import REPOSITORY, make_root
from tests.runtime_hook.drivertree import DriverTree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.functional, pytest.mark.timeout(900)]  # an emulated processor, on a busy machine

GUEST = REPOSITORY / "tests/runtime_hook/apparmorguest.py"
RELEASE = "/usr/lib/grapnel/releases/hook-test"
HOOK = f"""#!/usr/bin/python3 -IS
import sys
sys.path.insert(0, "{RELEASE}")
from runtime_hook.cli import main
sys.exit(main(sys.argv[1:]))
"""
# What containerd 2 and Docker 28 load for containers that name no other: all files, no mounts, little of /proc.
USUAL = """\
#include <tunables/global>
profile cri-containerd.apparmor.d flags=(attach_disconnected,mediate_deleted) {
  #include <abstractions/base>
  network,
  capability,
  file,
  umount,
  signal (receive) peer=unconfined,
  signal (receive) peer=runc,
  signal (send,receive) peer=cri-containerd.apparmor.d,
  deny @{PROC}/* w,
  deny @{PROC}/{[^1-9],[^1-9][^0-9],[^1-9s][^0-9y][^0-9s],[^1-9][^0-9][^0-9][^0-9]*}/** w,
  deny @{PROC}/sysrq-trigger rwklx,
  deny @{PROC}/kcore rwklx,
  deny mount,
  deny /sys/[^f]*/** wklx,
  deny /sys/firmware/** rwklx,
  ptrace peer=cri-containerd.apparmor.d,
}
"""
# Somebody's own, who wants no GPU in these containers.
NARROW = """\
#include <tunables/global>
profile narrow flags=(attach_disconnected,mediate_deleted) {
  #include <abstractions/base>
  capability,
  /** mrix,
  audit deny /dev/nvidia* rw,
  signal (receive) peer=unconfined,
  signal (receive) peer=runc,
}
"""
NODE_SIDE = "ansible_collections/grapnel/node/plugins/module_utils/machine"
OPENED = {"opened nvidia0", "opened nvidiactl"}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What containers printed in the virtual machine, by name."""
    folder = tmp_path_factory.mktemp("microvm")
    given = folder / "upper"
    _fill(given, folder)
    console = microvm.boot(microvm.ensure(), given, "python3 /guest.py", timeout_s=600.0, security="apparmor")
    results = [json.loads(line[7:]) for line in console.splitlines() if line.startswith("RESULT ")]
    facts = [json.loads(line[6:]) for line in console.splitlines() if line.startswith("FACTS ")]
    assert len(results) == 3, console
    return {one["name"]: one for one in results} | {"console": console, "facts": facts}


def _fill(given: Path, folder: Path) -> None:
    objects = folder / "objects"
    objects.mkdir()
    make_root(given / "var/lib/containers/root")
    DriverTree(given / "host", objects, with_nodes=False).build()
    (given / "host/dev").mkdir()
    release = given / RELEASE.lstrip("/")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "runtime_hook", release / "runtime_hook", ignore=ignored)
    (release / "grapnel-hook").write_text(HOOK)
    (release / "grapnel-hook").chmod(0o755)
    (given / "etc/grapnel").mkdir(parents=True)
    (given / "etc/grapnel/hook.json").write_text(json.dumps({"entitlement": "env", "log": "none"}))
    (given / "containers.profile").write_text(USUAL)
    (given / "narrow.profile").write_text(NARROW)
    shutil.copy(GUEST, given / "guest.py")
    collected = given / "collection" / NODE_SIDE
    collected.mkdir(parents=True)
    for name in ("host", "printable", "selinux"):
        shutil.copy(REPOSITORY / "playbooks/plugins/module_utils/machine" / f"{name}.py", collected)


def test_a_container_with_the_usual_profile_uses_its_gpu_and_stays_confined(said: dict[str, Any]) -> None:
    lines = said["given"]["lines"]
    assert "cri-containerd.apparmor.d (enforce)" in lines, said["console"]
    assert {*OPENED, "libcuda.so.1 42"} <= set(lines), said["console"]
    assert "no mount" in lines, said["console"]


def test_a_container_that_was_given_none_has_none(said: dict[str, Any]) -> None:
    lines = said["not-given"]["lines"]
    assert "libcuda.so.1 -1" in lines, said["console"]
    assert OPENED.isdisjoint(lines), said["console"]


def test_a_profile_that_refuses_gpus_is_told(said: dict[str, Any]) -> None:
    assert OPENED.isdisjoint(said["narrow"]["lines"]), said["console"]
    before, after = said["facts"]
    assert before == {"mode": "enabled", "denials": []}, said["console"]
    assert after["mode"] == "enabled"
    assert any(each.startswith("narrow ") and "/dev/nvidia0" in each for each in after["denials"]), said["console"]
