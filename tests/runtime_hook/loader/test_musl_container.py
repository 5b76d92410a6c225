"""musl's real loader in real containers: a program that needs libcuda runs, with and without a path file."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.containers import Container
from tests.runtime_hook.drivertree import compile_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.runtime_hook.drivertree import DriverTree

MACHINE = os.uname().machine
LOADER = Path(f"/lib/ld-musl-{MACHINE}.so.1")
pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(not LOADER.exists(), reason=f"{LOADER} is missing: apt-get install musl"),
]
ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
EXIT = {
    "x86_64": '__asm__ volatile("syscall" : : "a"(60), "D"((long)driver_answer()));',
    "aarch64": 'register long code __asm__("x0") = driver_answer();'
    '__asm__ volatile("mov x8, 93; svc 0" : : "r"(code));',
}


@pytest.fixture
def musl_root(tmp_path: Path) -> Path:
    """Make a root of musl alone, with a program that exits with the library's answer."""
    root = tmp_path / "musl"
    for folder in ("bin", "etc", "proc", "dev", "lib", "usr/lib"):
        (root / folder).mkdir(parents=True)
    shutil.copy(LOADER, root / "lib" / LOADER.name)
    compile_library(tmp_path / "libcuda.so.1", "libcuda.so.1")
    source = f"int driver_answer(void);\nvoid _start(void) {{ {EXIT[MACHINE]} __builtin_trap(); }}\n"
    argv = ["gcc", "-nostdlib", "-o", str(root / "bin/needs-cuda"), f"-Wl,--dynamic-linker=/lib/{LOADER.name}"]
    subprocess.run(
        [*argv, "-x", "c", "-", "-x", "none", str(tmp_path / "libcuda.so.1")], input=source, text=True, check=True
    )
    return root


@pytest.fixture
def run(tmp_path: Path, musl_root: Path, driver: DriverTree, configure: Callable[..., list[str]]) -> Callable[[], int]:
    """Start a container of the root and return its program's answer."""
    assert driver.root.exists()
    numbers = itertools.count()

    def start() -> int:
        folder = tmp_path / f"bundle{next(numbers)}"
        made = Container(folder, musl_root, ["/bin/needs-cuda"], hook_arguments=configure(), devices=ALLOCATED)
        done = made.run()
        assert done.stderr == ""
        return done.returncode

    return start


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, None, id="without a path file none is written"),
        pytest.param("/lib:/usr/lib\n", "/lib:/usr/lib\n", id="a path file with the folder stays"),
        pytest.param("/lib:/opt/lib", "/lib:/opt/lib\n/usr/lib\n", id="a path file without it gets a line"),
    ],
)
def test_a_program_of_musl_finds_the_driver(
    musl_root: Path, run: Callable[[], int], before: str | None, after: str | None
) -> None:
    path_file = musl_root / f"etc/ld-musl-{MACHINE}.path"
    if before is not None:
        path_file.write_text(before)
    assert (run(), run()) == (42, 42)
    assert (path_file.read_text() if path_file.exists() else None) == after
    assert not (musl_root / "etc/ld.so.cache").exists()
