"""A driver of the host, made of tiny libraries compiled here and stand-in device nodes (virtual consoles, major 4).

``DriverTree(root, objects).build()`` has utility, compute and whole GPUs; ``layers=`` adds more: names of
``driverlayers.LAYERS``, or ``EVERYTHING``.
"""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.runtime_hook.driverlayers import LAYERS

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "550.163.01"
SONAMES = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-gpucomp": "",
}
MULTIARCH = "usr/lib/x86_64-linux-gnu" if os.uname().machine == "x86_64" else "usr/lib/aarch64-linux-gnu"
CONTROL = {"nvidiactl": 62, "nvidia-uvm": 60, "nvidia-uvm-tools": 59}
MAJOR = 4


def uuid(index: int) -> str:
    return f"GPU-00000000-0000-0000-0000-00000000000{index}"


def compile_library(path: Path, soname: str, source: str = "int driver_answer(void) { return 42; }") -> None:
    """Compile a shared library without any dependency."""
    argv = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-o", str(path), "-"]
    argv += [f"-Wl,-soname,{soname}"] if soname else []
    subprocess.run(argv, input=source, text=True, check=True)


@dataclass
class DriverTree:
    """One host's tree; ``layout`` is debian (alternatives), multiarch or lib64 (RHEL)."""

    root: Path
    objects: Path
    layout: str = "debian"
    version: str = VERSION
    gpus: int = 2
    module: str = VERSION
    with_nodes: bool = True
    stems: tuple[str, ...] = field(default_factory=lambda: tuple(SONAMES))
    layers: tuple[str, ...] = ()
    model: str = "NVIDIA A100-SXM4-40GB"
    pci_device: str = "0x20b0"

    def build(self) -> DriverTree:
        self.add_libraries(self.version)
        binary = self.root / "usr/lib/nvidia/current/nvidia-smi"
        binary.parent.mkdir(parents=True, exist_ok=True)
        binary.write_text("#!/bin/sh\necho nvidia-smi of the host\n")
        binary.chmod(0o755)
        (self.root / "usr/bin").mkdir(parents=True, exist_ok=True)
        (self.root / "usr/bin/nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")
        self.set_module(self.module)
        for index in range(self.gpus):
            self.add_gpu(index)
        if self.with_nodes:
            for name, minor in CONTROL.items():
                self.node(name, minor)
        for layer in LAYERS:
            if layer in self.layers:
                LAYERS[layer](self)
        return self

    @staticmethod
    def sonames() -> dict[str, str]:
        """Return the SONAMES of what every tree has."""
        return SONAMES

    @property
    def folder(self) -> Path:
        """The folder with the real files."""
        folders = {"debian": f"{MULTIARCH}/nvidia/current", "multiarch": MULTIARCH, "lib64": "usr/lib64"}
        return self.root / folders[self.layout]

    @property
    def usual_folder(self) -> Path:
        """The loader's folder."""
        return self.root / ("usr/lib64" if self.layout == "lib64" else MULTIARCH)

    def add_libraries(self, version: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for stem in self.stems:
            real = self.folder / f"{stem}.so.{version}"
            compiled = self.objects / f"{stem}.so"
            if not compiled.exists():
                compile_library(compiled, SONAMES[stem])
            real.write_bytes(compiled.read_bytes())
            if SONAMES[stem]:
                self.link(self.folder / SONAMES[stem], real.name)
            if self.layout == "debian" and SONAMES[stem]:
                self.alternative(SONAMES[stem])

    def alternative(self, soname: str) -> None:
        """Lead the loader's folder to the real file through two links, as Debian's alternatives do."""
        name = f"glx--{soname}"
        link = self.root / "etc/alternatives" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        self.link(link, f"/{MULTIARCH}/nvidia/current/{soname}")
        self.link(self.root / MULTIARCH / soname, f"/etc/alternatives/{name}")

    @staticmethod
    def link(path: Path, target: str) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def set_module(self, version: str) -> None:
        path = self.root / "sys/module/nvidia/version"
        if not version:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(version + "\n")

    def add_gpu(self, index: int) -> None:
        folder = self.root / f"proc/driver/nvidia/gpus/0000:1{index}:00.0"
        folder.mkdir(parents=True)
        lines = [f"Model: \t\t {self.model}", f"GPU UUID: \t {uuid(index)}", f"Bus Location: \t 0000:1{index}:00.0"]
        (folder / "information").write_text("\n".join([*lines, f"Device Minor: \t {index}"]) + "\n")
        function = self.root / f"sys/bus/pci/devices/0000:1{index}:00.0"
        function.mkdir(parents=True)
        (function / "device").write_text(self.pci_device + "\n")
        if self.with_nodes:
            self.node(f"nvidia{index}", 16 + index)

    def node(self, name: str, minor: int) -> None:
        path = self.root / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(MAJOR, minor))

    def set_majors(self, majors: dict[str, int]) -> None:
        """Write ``/proc/devices``."""
        lines = ["Character devices:", "  1 mem", *(f"{major:3d} {name}" for name, major in majors.items())]
        (self.root / "proc").mkdir(exist_ok=True)
        (self.root / "proc/devices").write_text("\n".join([*lines, "", "Block devices:", "  7 loop", ""]))
