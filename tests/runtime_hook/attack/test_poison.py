"""Images that want the hook to load or run something of theirs: nothing is, with real runtimes."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from provision.planning.engines.files.hook import hook_entry
from tests.runtime_hook.containers import HOOK, START, run_hook

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.runtime_hook.containers import Container

pytestmark = pytest.mark.functional

ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
CONSTRUCTOR = """
#include <fcntl.h>
__attribute__((constructor)) static void poison(void) { creat("%s", 0644); }
void gconv(void) {}
"""
# What an image may say, {root} being where the host sees it: the hook's working directory may well be there.
ENVIRONMENTS = {
    "a preloaded library": ["LD_PRELOAD={root}/poison.so"],
    "a preloaded library in the working directory": ["LD_PRELOAD=/proc/self/cwd/poison.so"],
    "an auditing library": ["LD_AUDIT={root}/poison.so"],
    "a library path": ["LD_LIBRARY_PATH={root}"],
    "character converters": ["GCONV_PATH={root}", "LC_ALL=poison", "PYTHONIOENCODING=poison"],
    "settings of the C library": ["GLIBC_TUNABLES=glibc.malloc.check=3:glibc.rtld.optional_static_tls=-1"],
    "a module path": ["PYTHONPATH={root}"],
    "a home of Python": ["PYTHONHOME={root}"],
    "a start-up file": ["PYTHONSTARTUP={root}/os.py", "PYTHONINSPECT=1"],
    "a user's folder": ["HOME={root}", "PYTHONUSERBASE={root}", "PYTHONBREAKPOINT=os.poison"],
    "settings of malloc": ["MALLOC_TRACE={root}/poison", "MALLOC_CHECK_=3"],
    "another program path": ["PATH={root}:/bin"],
    "warnings that import": ["PYTHONWARNINGS=error::poison.Poison", "PYTHONDEVMODE=1", "PYTHONPROFILEIMPORTTIME=1"],
}
MODULES = ("json", "os", "sitecustomize", "usercustomize", "encodings", "ctypes", "runtime_hook", "poison", "_json")
PROGRAMS = ("sbin/ldconfig", "sbin/ldconfig.real", "usr/sbin/ldconfig", "ldconfig", "python3", "usr/bin/python3", "sh")


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    """The file that appears when anything of the image has had effect."""
    return tmp_path / "proof"


@pytest.fixture
def poisoned(root: Path, proof: Path) -> Path:
    """A root full of modules, libraries and programs that leave the proof."""
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-o", str(root / "poison.so"), "-"],
        input=CONSTRUCTOR % proof,
        text=True,
        check=True,
    )
    for name in ("gconv-modules", "libc.so.6.poison"):
        (root / name).write_text("module POISON// INTERNAL poison 1\n")
    for name in MODULES:
        (root / f"{name}.py").write_text(f"open({str(proof)!r}, 'w')\n")
    for name in PROGRAMS:
        program = root / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\necho {name} > {proof}\n")
        program.chmod(0o755)
    (root / "etc/ld.so.preload").write_text("/poison.so\n")
    (root / "etc/ld.so.conf").write_text("/\n")
    return root


@pytest.mark.parametrize("runtime", START)
def test_an_image_full_of_poison_gets_its_gpu_and_nothing_else(
    container: Callable[..., Container], poisoned: Path, proof: Path, runtime: str
) -> None:
    everything = [line.format(root=poisoned) for lines in ENVIRONMENTS.values() for line in lines]
    made = container(["/bin/busybox", "true"], devices=ALLOCATED, environment=everything)
    process = {**made.config()["process"], "cwd": "/usr/bin"}
    made.changes = {"process": process}
    for name in MODULES:
        made.folder.mkdir(exist_ok=True)
        shutil.copy(poisoned / f"{name}.py", made.folder)
    done = made.run(runtime)
    assert (done.returncode, done.stderr) == (0, "")
    assert not proof.exists()


@pytest.mark.parametrize("case", [name for name in ENVIRONMENTS if "librar" not in name])
def test_python_itself_heeds_no_setting_of_an_image(poisoned: Path, proof: Path, tmp_path: Path, case: str) -> None:
    """Even an engine that passes an image's environment on, and starts hooks in the image's root, imports nothing."""
    environment = dict(line.format(root=poisoned).split("=", 1) for line in ENVIRONMENTS[case])
    state = b'{"id": "x", "pid": 1, "bundle": "%s"}' % os.fsencode(tmp_path)
    done = run_hook(["prestart"], state, cwd=poisoned, env={"PATH": "/usr/bin:/bin", **environment})
    assert done.returncode == 1
    assert b"config.json does not exist" in done.stderr
    assert not proof.exists()


@pytest.mark.parametrize("name", ["a preloaded library", "a preloaded library in the working directory"])
def test_cve_2025_23266_the_hook_never_has_an_images_environment(
    container: Callable[..., Container], poisoned: Path, proof: Path, name: str
) -> None:
    """NVIDIAScape: a hook inside the container's namespaces, without an environment of its own, has the image's.

    runc before 1.3 passes it on, with the image's root as working directory.
    """
    environment = [line.format(root=poisoned) for line in ENVIRONMENTS[name]]
    naive = container(["/bin/busybox", "true"], devices=ALLOCATED, environment=environment)
    entry: dict[str, Any] = {"path": str(HOOK), "args": ["grapnel-hook", "--version"]}
    naive.changes = {"hooks": {"createContainer": [entry]}}
    naive.run()
    assert proof.exists(), "a hook without an environment of its own is not caught"
    proof.unlink()

    ours = container(["/bin/busybox", "true"], devices=ALLOCATED, environment=environment)
    shipped = hook_entry(hook_timeout_s=20)
    assert shipped["env"], "an empty environment would be the image's"
    ours.changes = {"hooks": {"prestart": [{**ours.config()["hooks"]["prestart"][0], "env": shipped["env"]}]}}
    assert ours.run().returncode == 0
    assert not proof.exists()
