"""Writes the node files that activate the simulated module interface, NVML and CUDA."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lab.kmod.build import SOURCE, build_modules, build_nodesim, kernel_makefile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

HOME = "/usr/lib/gpusim"
NVML_HOME = "/usr/lib/x86_64-linux-gnu/nvidia/current"
SIMULATED_NVML = f"{HOME}/libnvidia-ml.so"
SIMULATED_CUDA = f"{HOME}/libcuda.so"
PACKAGED = f"{HOME}/packaged"
MODULE_SOURCE = "module.c"
LOADED_AT_BOOT = ("nvidia", "nvidia-uvm", "nvidia-drm")


class NodeFiles(Protocol):
    """Destination of a node's files before it boots; paths are those on the node."""

    def write(self, place: str, text: str, mode: int = 0o644) -> None:
        """Write a file."""

    def append(self, place: str, text: str) -> None:
        """Write a file: the base tree's content, then ``text``."""

    def copy(self, place: str, source: Path) -> None:
        """Copy a file."""

    def link(self, place: str, target: str) -> None:
        """Create a symbolic link."""

    def folder(self, place: str) -> Path:
        """Create a folder, and return its path on this machine."""

    def reserve(self, place: str) -> Path:
        """Create the parent folder of ``place``, and return the path of ``place`` on this machine."""


@dataclass(frozen=True)
class KmodFiles:
    """Writes the simulated parts of one node."""

    files: NodeFiles
    kernel_release: str

    def install_kernel(self, gpu_lines: Iterable[str]) -> None:
        """Install the simulated module interface; the GPUs are those that the driver will find."""
        self.files.write("/etc/gpusim/release", f"{self.kernel_release}\n")
        self.files.write("/etc/gpusim/gpus", "".join(f"{line}\n" for line in gpu_lines))
        self.files.copy(f"{HOME}/nodesim.so", build_nodesim())
        self.files.write("/etc/ld.so.preload", f"{HOME}/nodesim.so\n")

    def install_module(self, version: str) -> None:
        """Install the driver's modules for ``version`` where modprobe finds them, to be loaded at boot."""
        self.files.write("/etc/modules-load.d/nvidia.conf", "".join(f"{name}\n" for name in LOADED_AT_BOOT))
        install_driver_module(self.files.folder("/usr/lib/modules"), version, self.kernel_release)

    def install_headers(self) -> None:
        """Install what DKMS needs of the kernel: a build of it makes the lab's small modules, in a second."""
        home = f"/usr/src/linux-headers-{self.kernel_release}"
        source = f"{home}/{MODULE_SOURCE}"
        self.files.copy(source, SOURCE / MODULE_SOURCE)
        self.files.write(f"{home}/Makefile", kernel_makefile(self.kernel_release, source))
        self.files.write(f"{home}/.config", "")
        self.files.folder(f"{home}/include")
        self.files.link(f"/usr/lib/modules/{self.kernel_release}/build", home)

    def install_libraries(self, nvml: Path, cuda: Path, versions: Sequence[str]) -> None:
        """Install the simulated NVML and CUDA where each driver version's packages would put the real ones.

        The names are hard links to one file, so that its state changes for all of them at once; CUDA finds the state in
        the NVML next to it. dpkg's diversions (deb-diversions: three lines each: from, to, by; ``:`` is the local
        administrator) move the packages' own files to ``/usr/lib/gpusim/packaged``.
        """
        self.files.folder(PACKAGED)
        names = self.link_libraries(nvml, cuda, versions, NVML_HOME)
        diversions = "".join(f"{NVML_HOME}/{name}\n{PACKAGED}/{name}\n:\n" for name in names)
        self.files.append("/var/lib/dpkg/diversions", diversions)

    def link_libraries(self, nvml: Path, cuda: Path, versions: Sequence[str], home: str) -> list[str]:
        """Install the simulated NVML and CUDA, and below ``home`` their names in each version; return the names."""
        self.files.copy(SIMULATED_NVML, nvml)
        self.files.copy(SIMULATED_CUDA, cuda)
        of = {f"libnvidia-ml.so.{version}": SIMULATED_NVML for version in versions}
        of |= {f"libcuda.so.{version}": SIMULATED_CUDA for version in versions}
        for name, simulated in of.items():
            place = self.files.reserve(f"{home}/{name}")
            place.unlink(missing_ok=True)
            os.link(self.files.reserve(simulated), place)
        return list(of)


def install_driver_module(modules: Path, version: str, kernel_release: str) -> None:
    """Replace the driver's modules for one kernel below ``modules`` (a node's ``/usr/lib/modules``).

    Loaded modules stay loaded, as on a machine whose administrator puts another version on disk.
    """
    built = build_modules(version, kernel_release) / "lib/modules" / kernel_release
    place = modules / kernel_release
    shutil.rmtree(place / "updates", ignore_errors=True)
    shutil.copytree(built, place, dirs_exist_ok=True)  # beside what leads to the kernel's headers
