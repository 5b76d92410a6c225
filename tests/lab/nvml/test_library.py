"""Building and installing the library."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from lab.nvml import CUDA_SONAME, SONAME, build, build_cuda, install, models, state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NEWEST_GLIBC = (2, 36)  # Debian 12's: the oldest system of the lab


both = pytest.mark.parametrize(
    ("library", "soname"), [(build, SONAME), (build_cuda, CUDA_SONAME)], ids=["nvml", "cuda"]
)


@both
def test_the_sources_compile_without_warnings(library: Callable[..., Path], soname: str) -> None:
    assert library(extra_flags=("-Werror",)).name == soname


@both
def test_the_same_sources_are_compiled_once(library: Callable[..., Path], soname: str) -> None:
    assert library().stat().st_mtime_ns == library().stat().st_mtime_ns, soname


@both
def test_it_is_what_programs_are_linked_to(library: Callable[..., Path], soname: str) -> None:
    headers = subprocess.run(["readelf", "-d", str(library())], check=True, capture_output=True, text=True).stdout
    assert f"Library soname: [{soname}]" in headers
    assert re.findall(r"Shared library: \[(.*)\]", headers) == ["libc.so.6"]


@both
def test_it_needs_no_newer_c_library_than_the_oldest_system_has(library: Callable[..., Path], soname: str) -> None:
    assert library().name == soname
    symbols = subprocess.run(["objdump", "-T", str(library())], check=True, capture_output=True, text=True).stdout
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", symbols)}
    assert max(versions) <= NEWEST_GLIBC


def test_an_installed_library_is_found_by_its_soname(tmp_path: Path) -> None:
    library = install(tmp_path / "lib", "550.163.01", models.machine("l4"))
    assert (tmp_path / "lib" / SONAME).resolve() == library.resolve()
    assert state.read(tmp_path / "lib" / SONAME) == models.machine("l4")


def test_installing_again_replaces_the_machine(tmp_path: Path) -> None:
    install(tmp_path, "550.163.01", models.machine("l4"))
    install(tmp_path, "550.163.01", models.machine("t4"))
    assert state.read(tmp_path / SONAME) == models.machine("t4")
