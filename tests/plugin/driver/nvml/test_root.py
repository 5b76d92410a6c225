"""A driver below another root, with the lab's C library: found there and nowhere else, and let go of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.nvml import install, models

REPOSITORY = Path(__file__).parents[4]
LOOK = """
import sys
from pathlib import Path
from plugin.base.errors import DriverNotReady
from plugin.driver.nvml.loading.library import NvmlSource, library_version
for root in map(Path, sys.argv[1:]):
    source = NvmlSource(root)
    try:
        source.open()
        print(source.snapshot().driver_version)
    except DriverNotReady as error:
        print(error.message)
    finally:
        source.close()
print(library_version(Path(sys.argv[1])))
print("mapped" if "libnvidia-ml" in Path("/proc/self/maps").read_text() else "let go")
"""


def look(library_path: Path, *roots: Path) -> list[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(library_path)}
    command = [sys.executable, "-W", "error", "-c", LOOK, *map(str, roots)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def put(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    install(folder, version, models.machine("a100-40gb", 1))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu/nvidia/current"])
def test_the_library_of_a_root_comes_before_the_hosts(tmp_path: Path, place: str) -> None:
    put(tmp_path / "host", "550.163.01")
    put(tmp_path / "driver" / place, "560.35.05")
    said = look(tmp_path / "host", tmp_path / "driver", Path("/"), tmp_path / "driver")
    assert said == ["560.35.05", "550.163.01", "560.35.05", "560.35.05", "let go"]


@pytest.mark.slow
def test_a_root_without_a_driver_is_not_the_hosts(tmp_path: Path) -> None:
    put(tmp_path / "host", "550.163.01")
    said = look(tmp_path / "host", tmp_path / "empty")
    assert said == [f"there is no libnvidia-ml.so.1 below {tmp_path / 'empty'}", "None", "let go"]


@pytest.mark.slow
def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    put(tmp_path / "host", "550.163.01")
    broken = tmp_path / "driver/usr/lib64/libnvidia-ml.so.1"
    broken.parent.mkdir(parents=True)
    broken.write_text("not a library")
    assert look(tmp_path / "host", tmp_path / "driver")[0].startswith(f"{broken} cannot be loaded: ")
